// exponents: a whole array, for which nothing that the receiver holds is of use. Sign and mantissa
// of weights are noise; their exponents are few, and most lie within seven neighbours, which take
// three bits. docs/format.md, section 2, has the payload.
//
// Blocks are coded alone and found through a directory: any range of elements is read without the
// rest. An array is planned first, then its blocks are written, in any order: so a whole version is
// streamed without holding its payloads.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "codec/codec.h"
#include "kernels/key_planes.h"

namespace deltawire::exponents {

// On disk: the size of a block is in the payload. Ours fit into second-level caches.
inline constexpr uint8_t kBlockLog2 = 16, kMinBlockLog2 = 12, kMaxBlockLog2 = 20;
inline constexpr size_t kBlockElements = size_t{1} << kBlockLog2;

// How elements of this layout are split; none: blocks are always raw.
std::optional<KeyForm> form_of(Layout layout) noexcept;

// How a block is coded.
struct BlockPlan {
  uint32_t size_bytes = 0;
  uint8_t base = 0;  // of the seven keys; without meaning for a raw block
};

// Where the blocks of a payload are.
class Directory {
 public:
  // Of an array of that size, to be made; `plans` of its blocks.
  Directory(Layout layout, uint64_t array_bytes, std::span<const BlockPlan> plans);
  // Of a payload that is untrusted. `front` has its first bytes; only those before the first block
  // are looked at, and all of them must be there. Corruption when no payload of `payload_bytes` can
  // begin like this.
  static Result<Directory> parse(Layout layout, uint64_t array_bytes, Bytes front,
                                 uint64_t payload_bytes);
  // Bytes before the first block, from the first byte of a payload.
  static Result<uint64_t> front_bytes(Layout layout, uint64_t array_bytes, uint8_t first);

  size_t num_blocks() const noexcept { return ends_.size(); }
  uint64_t payload_bytes() const noexcept;
  std::vector<uint8_t> front() const;
  // Bytes of the payload, and of the array.
  uint64_t block_begin(size_t block) const noexcept;
  uint64_t block_end(size_t block) const noexcept;
  uint64_t array_begin(size_t block) const noexcept { return block * block_bytes_; }
  uint64_t array_end(size_t block) const noexcept;

 private:
  Directory(Layout layout, uint64_t array_bytes, uint8_t block_log2);

  uint8_t block_log2_;
  uint64_t block_bytes_, array_bytes_;
  std::vector<uint64_t> ends_;
};

// At most kBlockElements elements. The same plan for the same bytes, on every machine.
BlockPlan plan_block(Layout layout, Bytes block) noexcept;
uint8_t plan_base(Layout layout, Bytes block) noexcept;

// Writes coded blocks; one for each thread.
class BlockWriter {
 public:
  explicit BlockWriter(Layout layout) : layout_(layout) {}
  // The block as `base` makes it, or raw where that is no smaller; valid until the next call.
  Bytes write(Bytes block, uint8_t base);

 private:
  const Layout layout_;
  std::vector<uint8_t> room_;
};

// What can be said of a block, which is untrusted, by its length and its first byte.
Status check_block(Layout layout, Bytes block, size_t array_bytes);
// `array` gets the block, which is untrusted.
Status read_block(Layout layout, Bytes block, MutableBytes array);

// The payload of an array. `hasher`, if there is one, is fed the array.
Result<std::vector<uint8_t>> encode_array(Layout layout, Bytes array, Hasher* hasher,
                                          ThreadPool* pool);
// The same backwards, with `hasher` fed the result.
Status decode_array(Layout layout, Bytes payload, MutableBytes array, Hasher* hasher,
                    ThreadPool* pool);

}  // namespace deltawire::exponents
