// xor-zstd: new ^ old of each 4 MiB of the array in a zstd frame, as slime does for whole tensors.
// frames.h has the layout; a frame's content is as long as its chunk.
#include <algorithm>

#include "codec/builtin.h"
#include "codec/changes.h"
#include "codec/checks.h"
#include "codec/frames.h"

namespace deltawire {
namespace {

void xor_into(const uint8_t* a, const uint8_t* b, size_t size, uint8_t* out) noexcept {
  for (size_t i = 0; i < size; ++i) out[i] = a[i] ^ b[i];
}

Status check_content_size(size_t chunk_bytes, uint64_t content_bytes) {
  if (content_bytes == chunk_bytes) return {};
  return bad_payload("zstd content size", chunk_bytes, content_bytes);
}

class XorZstdCodec final : public Codec {
 public:
  CodecId id() const noexcept override { return CodecId::kXorZstd; }
  std::string_view name() const noexcept override { return "xor-zstd"; }

  Result<Encoded> encode(Layout layout, Bytes old_bytes, Bytes new_bytes,
                         ThreadPool* pool) const override {
    DW_RETURN_IF_ERROR(check_arrays(layout, old_bytes, new_bytes));
    const auto make = [&](Bytes before, Bytes after, std::vector<uint8_t>* content) {
      const uint64_t count =
          count_different(layout.width, before.data(), after.data(), after.size() / layout.width);
      if (count != 0) {
        content->resize(after.size());
        xor_into(before.data(), after.data(), after.size(), content->data());
      }
      return count;
    };
    return encode_frames(old_bytes, new_bytes, pool, make);
  }

  Status apply(Layout layout, Bytes payload, MutableBytes data, ThreadPool* pool) const override {
    DW_RETURN_IF_ERROR(check_array(layout, data.size()));
    const auto use = [&](size_t, size_t offset, size_t size, Bytes content) -> Status {
      uint8_t* chunk = data.data() + offset;
      xor_into(chunk, content.data(), size, chunk);
      return {};
    };
    return decode_frames(payload, data.size(), pool, check_content_size, use);
  }

  Result<Changes> decode(Layout layout, Bytes payload, Bytes old_bytes,
                         ThreadPool* pool) const override {
    DW_RETURN_IF_ERROR(check_array(layout, old_bytes.size()));
    std::vector<ChunkChanges> chunks(num_frame_chunks(old_bytes.size()));
    const auto use = [&](size_t i, size_t offset, size_t size, Bytes content) -> Status {
      const Bytes before = old_bytes.subspan(offset, size);
      std::vector<uint8_t> after(size);
      xor_into(before.data(), content.data(), size, after.data());
      chunks[i].base = offset / layout.width;
      collect_chunk(layout.width, before, after, &chunks[i]);
      return {};
    };
    DW_RETURN_IF_ERROR(decode_frames(payload, old_bytes.size(), pool, check_content_size, use));
    return join_chunks(layout.width, std::move(chunks), pool);
  }
};

}  // namespace

const Codec& xor_zstd_codec() noexcept {
  static const XorZstdCodec codec;
  return codec;
}

}  // namespace deltawire
