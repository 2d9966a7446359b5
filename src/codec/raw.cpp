// raw: the payload is the new array itself. For dense changes, and as the measure of all others.
#include <algorithm>

#include "base/copy_parallel.h"
#include "codec/changes.h"
#include "codec/checks.h"
#include "codec/codec.h"

namespace deltawire {
namespace {

constexpr size_t kCopyBytes = size_t{1} << 20;  // a multiple of every width

size_t num_pieces(size_t size_bytes) { return (size_bytes + kCopyBytes - 1) / kCopyBytes; }

Status check_payload(Layout layout, Bytes payload, size_t array_bytes) {
  DW_RETURN_IF_ERROR(check_array(layout, array_bytes));
  if (payload.size() != array_bytes)
    return bad_payload("payload size", array_bytes, payload.size());
  return {};
}

class RawCodec final : public Codec {
 public:
  CodecId id() const noexcept override { return CodecId::kRaw; }
  std::string_view name() const noexcept override { return "raw"; }

  Result<Encoded> encode(Layout layout, Bytes old_bytes, Bytes new_bytes,
                         ThreadPool* pool) const override {
    DW_RETURN_IF_ERROR(check_arrays(layout, old_bytes, new_bytes));
    Encoded encoded;
    encoded.payload.assign(new_bytes.begin(), new_bytes.end());
    std::vector<uint64_t> counts(num_pieces(new_bytes.size()));
    parallel_for(pool, counts.size(), [&](size_t i, unsigned) {
      const size_t begin = i * kCopyBytes;
      counts[i] = count_different(layout.width, old_bytes.data() + begin, new_bytes.data() + begin,
                                  std::min(kCopyBytes, new_bytes.size() - begin) / layout.width);
    });
    for (const uint64_t count : counts) encoded.num_changed += count;
    return encoded;
  }

  Status apply(Layout layout, Bytes payload, MutableBytes data, ThreadPool* pool) const override {
    DW_RETURN_IF_ERROR(check_payload(layout, payload, data.size()));
    copy_parallel(payload, data, pool);
    return {};
  }

  Result<Changes> decode(Layout layout, Bytes payload, Bytes old_bytes,
                         ThreadPool* pool) const override {
    DW_RETURN_IF_ERROR(check_payload(layout, payload, old_bytes.size()));
    return collect_changes(layout.width, old_bytes, payload, pool);
  }
};

}  // namespace

const Codec& raw_codec() noexcept {
  static const RawCodec codec;
  return codec;
}

}  // namespace deltawire
