// A binary range coder whose probabilities adapt to what they have seen. Slow beside rANS, but it
// stores no tables and no states: for changes that are few. docs/format.md, "adaptive", has the
// arithmetic.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/bytes.h"

namespace deltawire {

// The chance that a bit is 0, in units of 2^-16: first learns fast, then slowly.
class AdaptiveBit {
 public:
  AdaptiveBit() = default;
  // Begins with this chance, 1 ... 65535, as if it had learned it of a few bits.
  explicit AdaptiveBit(uint32_t zero) : zero_(zero), seen_(kExpectedSeen) {}
  // For the coder: 1 ... 4095, of 4096.
  uint32_t chance() const { return std::clamp<uint32_t>(zero_ >> 4, 1, 4095); }
  void learn(bool bit) {
    const uint32_t divisor = 2U * seen_ + 3;
    if (bit) {
      zero_ -= 2 * zero_ / divisor;
    } else {
      zero_ += 2 * (65536 - zero_) / divisor;
    }
    seen_ = uint16_t(seen_ + (seen_ < kMostSeen));
  }

 private:
  static constexpr uint16_t kMostSeen = 255, kExpectedSeen = 3;
  uint32_t zero_ = 32768;
  uint16_t seen_ = 0;
};

inline constexpr uint32_t kRangeTop = 1U << 24;  // a byte is moved when the range is below
inline constexpr uint64_t kRangeMark = 0xa5;

// Encoder and decoder have the same two calls, so that one model serves both: the encoder is given
// what the decoder gives back.
class RangeEncoder {
 public:
  explicit RangeEncoder(std::vector<uint8_t>* out) : out_(*out) {}

  bool bit(AdaptiveBit* model, bool value) {
    const uint32_t zero = (range_ >> 12) * model->chance();
    if (value) {
      low_ += zero;
      range_ -= zero;
    } else {
      range_ = zero;
    }
    model->learn(value);
    normalise();
    return value;
  }
  // Bits of equal chance, the highest first.
  uint64_t raw(uint64_t value, unsigned count) {
    while (count-- > 0) {
      range_ >>= 1;
      if ((value >> count & 1) != 0) low_ += range_;
      normalise();
    }
    return value;
  }
  // A mark that the decoder must find, and one byte more: the range always holds a number whose
  // other three bytes are zero, and these are left out.
  void finish() {
    raw(kRangeMark, 8);
    low_ = (low_ + range_ - 1) & ~uint64_t{0xffffff};
    carry();
    out_.push_back(uint8_t(low_ >> 24));
  }

 private:
  void normalise() {
    carry();
    while (range_ < kRangeTop) {
      out_.push_back(uint8_t(low_ >> 24));
      low_ = low_ << 8 & 0xffffffff;
      range_ <<= 8;
    }
  }
  // What is written is a number: one more in it goes as far back as there are bytes of 255.
  void carry() {
    if (low_ >> 32 == 0) return;
    low_ &= 0xffffffff;
    size_t at = out_.size();
    while (++out_[--at] == 0) {
    }
  }

  std::vector<uint8_t>& out_;
  uint64_t low_ = 0;
  uint32_t range_ = 0xffffffff;
};

class RangeDecoder {
 public:
  explicit RangeDecoder(Bytes in) : in_(in) {
    for (int i = 0; i < 4; ++i) code_ = code_ << 8 | next();
  }

  bool bit(AdaptiveBit* model, bool = false) {
    const uint32_t zero = (range_ >> 12) * model->chance();
    const bool value = code_ >= zero;
    if (value) {
      code_ -= zero;
      range_ -= zero;
    } else {
      range_ = zero;
    }
    model->learn(value);
    normalise();
    return value;
  }
  uint64_t raw(uint64_t, unsigned count) {
    uint64_t value = 0;
    while (count-- > 0) {
      range_ >>= 1;
      const bool one = code_ >= range_;
      code_ -= one ? range_ : 0;
      value = value << 1 | uint64_t(one);
      normalise();
    }
    return value;
  }
  // More was asked for than an encoder leaves out.
  bool ran_out() const { return missing_ > 3; }
  // The mark is there, and the payload ends behind it.
  bool at_end() { return raw(0, 8) == kRangeMark && at_ == in_.size() && missing_ == 3; }

 private:
  uint8_t next() {
    if (at_ < in_.size()) return in_[at_++];
    ++missing_;
    return 0;
  }
  void normalise() {
    while (range_ < kRangeTop) {
      code_ = code_ << 8 | next();
      range_ <<= 8;
    }
  }

  const Bytes in_;
  size_t at_ = 0;
  uint64_t missing_ = 0;
  uint32_t code_ = 0, range_ = 0xffffffff;
};

}  // namespace deltawire
