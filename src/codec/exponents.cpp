#include "codec/exponents.h"

#include <algorithm>

#include "base/guard.h"
#include "codec/changes.h"
#include "codec/checks.h"
#include "codec/codec.h"
#include "digest/parallel.h"

namespace deltawire::exponents {

Result<std::vector<uint8_t>> encode_array(Layout layout, Bytes array, Hasher* hasher,
                                          ThreadPool* pool) {
  DW_RETURN_IF_ERROR(check_array(layout, array.size()));
  const size_t block_bytes = kBlockElements * layout.width;
  const size_t num_blocks = (array.size() + block_bytes - 1) / block_bytes;
  std::vector<BlockWriter> writers(num_workers(pool), BlockWriter(layout));
  std::vector<std::vector<uint8_t>> blocks(num_blocks);
  DW_RETURN_IF_ERROR(
      parallel_try("encoding", pool, num_blocks, [&](size_t i, unsigned worker) -> Status {
        const size_t at = i * block_bytes, size = std::min(block_bytes, array.size() - at);
        const Bytes own = array.subspan(at, size);
        const Bytes coded = writers[worker].write(own, plan_base(layout, own));
        blocks[i].assign(coded.begin(), coded.end());
        if (hasher != nullptr) hasher->update_at(array.subspan(at, size), at);
        return {};
      }));
  std::vector<BlockPlan> plans(num_blocks);
  for (size_t i = 0; i < num_blocks; ++i) plans[i].size_bytes = uint32_t(blocks[i].size());
  const Directory directory(layout, array.size(), plans);
  std::vector<uint8_t> payload = directory.front();
  payload.reserve(size_t(directory.payload_bytes()));
  for (std::vector<uint8_t>& block : blocks) {
    payload.insert(payload.end(), block.begin(), block.end());
    block = {};
  }
  return payload;
}

Status decode_array(Layout layout, Bytes payload, MutableBytes array, Hasher* hasher,
                    ThreadPool* pool) {
  DW_RETURN_IF_ERROR(check_array(layout, array.size()));
  DW_ASSIGN_OR_RETURN(const Directory directory,
                      Directory::parse(layout, array.size(), payload, payload.size()));
  return parallel_try("decoding", pool, directory.num_blocks(), [&](size_t i, unsigned) -> Status {
    const size_t at = size_t(directory.array_begin(i));
    const size_t size = size_t(directory.array_end(i)) - at;
    const size_t begin = size_t(directory.block_begin(i));
    DW_RETURN_IF_ERROR(read_block(layout,
                                  payload.subspan(begin, size_t(directory.block_end(i)) - begin),
                                  array.subspan(at, size)));
    if (hasher != nullptr) hasher->update_at(array.subspan(at, size), at);
    return {};
  });
}

namespace {

class ExponentsCodec final : public Codec {
 public:
  CodecId id() const noexcept override { return CodecId::kExponents; }
  std::string_view name() const noexcept override { return "exponents"; }

  Result<Encoded> encode(Layout layout, Bytes old_bytes, Bytes new_bytes,
                         ThreadPool* pool) const override {
    return encode_hashed(layout, old_bytes, new_bytes, {}, pool);
  }

  Result<Encoded> encode_hashed(Layout layout, Bytes old_bytes, Bytes new_bytes,
                                const Hashers& hashers, ThreadPool* pool) const override {
    DW_RETURN_IF_ERROR(check_arrays(layout, old_bytes, new_bytes));
    if (hashers.old_bytes != nullptr) update_all(hashers.old_bytes, old_bytes, pool);
    Encoded encoded;
    DW_ASSIGN_OR_RETURN(encoded.payload, encode_array(layout, new_bytes, hashers.new_bytes, pool));
    encoded.num_changed = count_different(layout.width, old_bytes.data(), new_bytes.data(),
                                          new_bytes.size() / layout.width);
    return encoded;
  }

  Status apply(Layout layout, Bytes payload, MutableBytes data, ThreadPool* pool) const override {
    return decode_array(layout, payload, data, nullptr, pool);
  }

  Status apply_hashed(Layout layout, Bytes payload, MutableBytes data, Hasher* patched,
                      ThreadPool* pool) const override {
    return decode_array(layout, payload, data, patched, pool);
  }

  Result<Changes> decode(Layout layout, Bytes payload, Bytes old_bytes,
                         ThreadPool* pool) const override {
    std::vector<uint8_t> array(old_bytes.size());
    DW_RETURN_IF_ERROR(decode_array(layout, payload, array, nullptr, pool));
    return collect_changes(layout.width, old_bytes, array, pool);
  }
};

}  // namespace
}  // namespace deltawire::exponents

namespace deltawire {

const Codec& exponents_codec() noexcept {
  static const exponents::ExponentsCodec codec;
  return codec;
}

}  // namespace deltawire
