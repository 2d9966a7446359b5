// Which elements of a strip differ, on AVX2 and AVX-512. Included once per target by simd.cpp,
// inside HWY_NAMESPACE.

inline __m256i load256(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }

#if HWY_TARGET != HWY_AVX2
inline __m512i load512(const void* p) { return _mm512_loadu_si512(p); }
#endif

// Bit i: elements i of a and b differ.
template <class T>
inline uint64_t diff_strip(const T* a, const T* b) {
#if HWY_TARGET == HWY_AVX2
  if constexpr (sizeof(T) == 2) {
    uint64_t same = 0;
    for (int half = 0; half < 2; ++half) {
      const uint16_t *p = a + 32 * half, *q = b + 32 * half;
      const __m256i low = _mm256_cmpeq_epi16(load256(p), load256(q));
      const __m256i high = _mm256_cmpeq_epi16(load256(p + 16), load256(q + 16));
      const __m256i bytes = _mm256_permute4x64_epi64(_mm256_packs_epi16(low, high), 0xd8);
      same |= uint64_t(uint32_t(_mm256_movemask_epi8(bytes))) << (32 * half);
    }
    return ~same;
  } else {
    constexpr int kLanes = 32 / sizeof(T);
    uint64_t same = 0;
    for (int i = 0; i < 64; i += kLanes) {
      const __m256i x = load256(a + i), y = load256(b + i);
      uint32_t bits;
      if constexpr (sizeof(T) == 1) {
        bits = uint32_t(_mm256_movemask_epi8(_mm256_cmpeq_epi8(x, y)));
      } else if constexpr (sizeof(T) == 4) {
        bits = uint32_t(_mm256_movemask_ps(_mm256_castsi256_ps(_mm256_cmpeq_epi32(x, y))));
      } else {
        bits = uint32_t(_mm256_movemask_pd(_mm256_castsi256_pd(_mm256_cmpeq_epi64(x, y))));
      }
      same |= uint64_t(bits) << i;
    }
    return ~same;
  }
#else
  constexpr int kLanes = 64 / sizeof(T);
  uint64_t differs = 0;
  for (int i = 0; i < 64; i += kLanes) {
    const __m512i x = load512(a + i), y = load512(b + i);
    uint64_t bits;
    if constexpr (sizeof(T) == 1) {
      bits = _mm512_cmpneq_epu8_mask(x, y);
    } else if constexpr (sizeof(T) == 2) {
      bits = _mm512_cmpneq_epu16_mask(x, y);
    } else if constexpr (sizeof(T) == 4) {
      bits = _mm512_cmpneq_epu32_mask(x, y);
    } else {
      bits = _mm512_cmpneq_epu64_mask(x, y);
    }
    differs |= bits << i;
  }
  return differs;
#endif
}
