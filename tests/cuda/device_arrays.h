// Pairs of arrays on a GPU and on the host, to compare both.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "codec/codec.h"
#include "codec/codec_arrays.h"
#include "codec/cuda/device_codec.h"
#include "kernels/bf16.h"
#include "kernels/cuda/memory.h"

namespace deltawire::cuda {

#define SKIP_WITHOUT_GPU()                                                     \
  if (const Status device = ::deltawire::cuda::check_device(); !device.ok()) { \
    GTEST_SKIP() << "skipped: no GPU (" << device.to_string() << ")";          \
  }

template <class T>
T good(Result<T> result) {
  EXPECT_TRUE(result.ok()) << result.status().to_string();
  return result.ok() ? std::move(*result) : T{};
}
#define ASSERT_GOOD(expression)                       \
  do {                                                \
    const Status status_ = (expression);              \
    ASSERT_TRUE(status_.ok()) << status_.to_string(); \
  } while (false)

// From host memory to the device. Waits.
inline Status send(std::span<const uint8_t> bytes, void* device, Stream stream) {
  const Status sent = copy(device, bytes.data(), bytes.size(), stream);
  return sent.ok() ? wait(stream) : sent;
}

// In [0, 1), and normally distributed.
inline double unit(Random& random) { return double(random() >> 11) * 0x1p-53; }
inline double normal(Random& random) {
  return std::sqrt(-2 * std::log(unit(random) + 1e-300)) *
         std::cos(6.283185307179586 * unit(random));
}

// The contents of arrays: realistic weights, or arbitrary bits.
enum class Content { kWeights, kNoise };

inline uint64_t make_value(Random& random, unsigned width, Content content) {
  if (content == Content::kNoise || width == 1) return random() >> (64 - 8 * width);
  const float value = float(0.02 * normal(random));
  if (width == 2) return bf16_of_f32(std::bit_cast<uint32_t>(value));
  if (width == 4) return std::bit_cast<uint32_t>(value);
  return std::bit_cast<uint64_t>(double(value));
}

struct HostPair {
  unsigned width = 2;
  std::vector<uint8_t> old_bytes, new_bytes;
  uint32_t rows = 0, columns = 0;  // of matrices

  Layout layout() const {
    Layout layout = layout_of(width);
    layout.rows = rows;
    layout.columns = columns;
    return layout;
  }
};

// Each element changes with the given probability, mostly by a small step, sometimes arbitrarily.
inline HostPair make_pair(uint64_t seed, unsigned width, size_t n, double density,
                          Content content = Content::kWeights) {
  Random random(seed);
  HostPair pair{width, std::vector<uint8_t>(n * width), std::vector<uint8_t>(n * width)};
  for (size_t i = 0; i < n; ++i) {
    const uint64_t old_value = make_value(random, width, content);
    uint64_t new_value = old_value;
    if (unit(random) < density) {
      const uint64_t kind = random() % 100;
      if (kind < 80) {
        new_value = old_value + ((random() & 1) != 0 ? 1 : -1);
      } else if (kind < 97) {
        new_value = old_value + random() % 40 - 20;
      } else {
        new_value = random();
      }
    }
    std::memcpy(pair.old_bytes.data() + i * width, &old_value, width);
    std::memcpy(pair.new_bytes.data() + i * width, &new_value, width);
  }
  return pair;
}

// Changes like those of training: weights with a small exponent change more often and by any step,
// sometimes with the sign, the others by +1 or -1. So some classes of `tight` have tokens, others
// only signs.
inline HostPair make_trained_pair(uint64_t seed, unsigned width, size_t n, double density) {
  Random random(seed);
  HostPair pair = make_pair(seed, width, n, 0);
  const Layout layout = layout_of(width);
  const uint64_t large_key = width == 1 ? 6 : width == 8 ? 127 : 116;
  for (size_t i = 0; i < n; ++i) {
    uint64_t value = 0;
    std::memcpy(&value, pair.old_bytes.data() + i * width, width);
    const bool small = (value >> layout.key_shift & layout.key_mask) < large_key;
    if (unit(random) >= (small ? std::min(0.9, 6 * density) : density)) continue;
    uint64_t size = 1;
    if (small) {
      const uint64_t kind = random() % 20;
      size = kind < 10 ? 1 : kind < 18 ? 1 + random() % 16 : random() >> random() % 64;
    }
    value += (random() & 1) != 0 ? size : ~size + 1;
    std::memcpy(pair.new_bytes.data() + i * width, &value, width);
  }
  return pair;
}

// Bytes on the device, `skew` bytes past an aligned address.
class OnDevice {
 public:
  OnDevice() = default;
  explicit OnDevice(const std::vector<uint8_t>& bytes, size_t skew = 0)
      : skew_(skew), size_(bytes.size()) {
    buffer_ = good(Buffer::allocate(Place::kDevice, size_ + skew + 64));
    EXPECT_TRUE(copy(data(), bytes.data(), size_, nullptr).ok());
  }
  uint8_t* data() const { return buffer_.data() + skew_; }
  std::vector<uint8_t> fetch() const {
    std::vector<uint8_t> bytes(size_);
    EXPECT_TRUE(copy(bytes.data(), data(), size_, nullptr).ok());
    const Status done = wait(nullptr);
    EXPECT_TRUE(done.ok()) << done.to_string();
    return bytes;
  }

 private:
  Buffer buffer_;
  size_t skew_ = 0, size_ = 0;
};

// Several pairs, with both arrays of each on the device.
struct DeviceBatch {
  std::vector<HostPair> host;
  std::vector<OnDevice> old_arrays, new_arrays;
  std::vector<DevicePair> pairs;

  void add(HostPair pair, size_t skew = 0) {
    old_arrays.emplace_back(pair.old_bytes, skew);
    new_arrays.emplace_back(pair.new_bytes, skew == 0 ? 0 : skew + 1);
    pairs.push_back({pair.layout(), old_arrays.back().data(), new_arrays.back().data(),
                     pair.old_bytes.size() / pair.width});
    host.push_back(std::move(pair));
  }
};

// The CPU's payload for the same arrays.
inline Encoded encode_on_cpu(CodecId codec, const HostPair& pair) {
  return good(find_codec(codec)->encode(pair.layout(), pair.old_bytes, pair.new_bytes, nullptr));
}

}  // namespace deltawire::cuda
