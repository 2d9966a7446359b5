// sum128 on NEON, which multiplies and adds in one instruction if low and high halves lie apart:
// two loads are unzipped, and so are the keys. Included by simd.cpp, inside HWY_NAMESPACE.

// For each four words, their keys' four low halves, then their four high halves.
struct UnzippedKeys {
  alignas(64) uint32_t halves[sum128::kLanes][2 * sum128::kSegmentWords] = {};
  constexpr UnzippedKeys() {
    for (size_t lane = 0; lane < sum128::kLanes; ++lane) {
      for (size_t i = 0; i < sum128::kSegmentWords; ++i) {
        const uint64_t key = sum128::word_key(lane, i);
        halves[lane][i / 4 * 8 + i % 4] = uint32_t(key);
        halves[lane][i / 4 * 8 + 4 + i % 4] = uint32_t(key >> 32);
      }
    }
  }
};
inline constexpr UnzippedKeys kUnzippedKeys;

inline void sum_whole(const uint8_t* data, size_t count, uint64_t segment, uint64_t* sums) {
  // The compiler must not know the keys: it would keep them as constants in the code.
  const UnzippedKeys* table = &kUnzippedKeys;
  asm volatile("" : "+r"(table));
  uint64_t total[sum128::kLanes] = {sums[0], sums[1]};
  for (; count != 0; --count, ++segment) {
    uint64x2_t low[sum128::kLanes] = {vdupq_n_u64(0), vdupq_n_u64(0)};
    uint64x2_t high[sum128::kLanes] = {vdupq_n_u64(0), vdupq_n_u64(0)};
    const uint32_t* keys = table->halves[0];
#pragma GCC unroll 1
    for (size_t half = 0; half < 2; ++half, data += 256, keys += 64) {
#pragma GCC unroll 8
      for (size_t i = 0; i < 8; ++i) {
        const uint32x4_t first = vreinterpretq_u32_u8(vld1q_u8(data + 32 * i));
        const uint32x4_t second = vreinterpretq_u32_u8(vld1q_u8(data + 32 * i + 16));
        const uint32x4_t lows = vuzp1q_u32(first, second), highs = vuzp2q_u32(first, second);
#pragma GCC unroll 2
        for (size_t lane = 0; lane < sum128::kLanes; ++lane) {
          const uint32_t* const key = keys + lane * 2 * sum128::kSegmentWords + 8 * i;
          const uint32x4_t a = vaddq_u32(lows, vld1q_u32(key));
          const uint32x4_t b = vaddq_u32(highs, vld1q_u32(key + 4));
          low[lane] = vmlal_u32(low[lane], vget_low_u32(a), vget_low_u32(b));
          high[lane] = vmlal_high_u32(high[lane], a, b);
        }
      }
    }
    const uint64x2_t both = vpaddq_u64(vaddq_u64(low[0], high[0]), vaddq_u64(low[1], high[1]));
    total[0] += sum128::segment_key(0, segment) * vgetq_lane_u64(both, 0);
    total[1] += sum128::segment_key(1, segment) * vgetq_lane_u64(both, 1);
  }
  sums[0] = total[0];
  sums[1] = total[1];
}

inline void sum_part(const uint8_t* data, size_t num_words, size_t column, uint64_t* products) {
  uint64x2_t all[sum128::kLanes] = {vdupq_n_u64(0), vdupq_n_u64(0)};
  size_t i = 0;
  for (; i + 2 <= num_words; i += 2) {
    const uint32x4_t words = vreinterpretq_u32_u8(vld1q_u8(data + 8 * i));
#pragma GCC unroll 2
    for (size_t lane = 0; lane < sum128::kLanes; ++lane) {
      const uint32x4_t keys =
          vreinterpretq_u32_u64(vld1q_u64(sum128::kWordKeys.keys[lane] + column + i));
      const uint64x2_t sum = vreinterpretq_u64_u32(vaddq_u32(words, keys));
      all[lane] = vmlal_u32(all[lane], vmovn_u64(sum), vshrn_n_u64(sum, 32));
    }
  }
  for (size_t lane = 0; lane < sum128::kLanes; ++lane) {
    products[lane] += vaddvq_u64(all[lane]);
    if (i < num_words) {
      uint64_t word;
      std::memcpy(&word, data + 8 * i, sizeof word);
      products[lane] += sum128::product(word, sum128::kWordKeys.keys[lane][column + i]);
    }
  }
}
