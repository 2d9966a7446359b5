// Bits, least significant first, into and out of byte buffers. Both sides work on padded buffers so
// that the inner loops need no branch per access; limits are checked by the caller in steps.
#pragma once

#include <cstdint>

#include "base/bytes.h"

namespace deltawire {

// A decoder may read this far past either end of a block before it looks at its limits.
inline constexpr size_t kBlockPadding = 256;

// Writes through a pointer that the caller has given enough room, 8 bytes more than the bits need.
// A value: keep it in a local while it is busy, so that it lives in registers.
class BitWriter {
 public:
  explicit BitWriter(uint8_t* buffer) : begin_(buffer), at_(buffer) {}

  // value < 2^count, count <= 56.
  void put(uint64_t value, unsigned count) {
    pending_ |= value << used_;
    store_le(at_, pending_);
    used_ += count;
    at_ += used_ >> 3;
    pending_ >>= used_ & ~7U;
    used_ &= 7;
  }
  // count <= 64.
  void put_long(uint64_t value, unsigned count) {
    if (count <= 32) return put(value, count);
    put(value & 0xffffffffU, 32);
    put(value >> 32, count - 32);
  }

  uint64_t num_bits() const { return uint64_t(at_ - begin_) * 8 + used_; }
  Bytes bytes() const { return {begin_, size_t(at_ - begin_) + (used_ != 0)}; }

 private:
  uint8_t *begin_, *at_;
  uint64_t pending_ = 0;  // the bits of the byte at_ points to
  unsigned used_ = 0;     // how many
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
