// Bits, least significant first, into and out of byte buffers. Both sides work on padded buffers so
// that the inner loops need no branch per access; limits are checked by the caller in steps.
#pragma once

#include <cstdint>
#include <vector>

#include "base/bytes.h"

namespace deltawire {

// A decoder may read this far past either end of a block before it looks at its limits.
inline constexpr size_t kBlockPadding = 256;

class BitWriter {
 public:
  // Room for `num_bits` more bits must be asked for before they are put.
  void reserve_bits(size_t num_bits) {
    const size_t needed = size_t(at_ / 8) + num_bits / 8 + 16;
    if (buffer_.size() < needed) buffer_.resize(needed + needed / 2);
  }
  void clear() { at_ = 0, pending_ = 0; }

  // value < 2^count, count <= 56.
  void put(uint64_t value, unsigned count) {
    const unsigned used = unsigned(at_ & 7);
    pending_ |= value << used;
    store_le(buffer_.data() + (at_ >> 3), pending_);
    at_ += count;
    pending_ >>= (used + count) & ~7U;
  }
  // count <= 64.
  void put_long(uint64_t value, unsigned count) {
    if (count <= 32) return put(value, count);
    put(value & 0xffffffffU, 32);
    put(value >> 32, count - 32);
  }

  uint64_t num_bits() const { return at_; }
  Bytes bytes() const { return {buffer_.data(), size_t((at_ + 7) / 8)}; }

 private:
  std::vector<uint8_t> buffer_;
  uint64_t at_ = 0, pending_ = 0;  // pending_: the bits of the byte at_ points into
};

class BitReader {
 public:
  explicit BitReader(const uint8_t* data) : data_(data) {}

  // At least 57 valid bits.
  uint64_t peek() const { return load_le<uint64_t>(data_ + (at_ >> 3)) >> (at_ & 7); }
  void skip(unsigned count) { at_ += count; }
  // count <= 56.
  uint64_t get(unsigned count) {
    const uint64_t value = peek() & ((uint64_t{1} << count) - 1);
    at_ += count;
    return value;
  }
  // count <= 64.
  uint64_t get_long(unsigned count) {
    if (count <= 32) return get(count);
    const uint64_t low = get(32);
    return low | get(count - 32) << 32;
  }

  uint64_t num_bits() const { return at_; }

 private:
  const uint8_t* data_;
  uint64_t at_ = 0;
};

}  // namespace deltawire
