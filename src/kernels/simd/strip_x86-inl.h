// Strips of 64 elements on AVX2 and AVX-512: a class is a 64-bit mask, a rank is a popcount.
// Included once per target by simd.cpp, inside HWY_NAMESPACE.
//
// Scratch of a strip: one row of eight words. While scanning, word i >= 1 holds the elements whose
// key reaches threshold i, word 0 those that exist; finish() turns them into one mask per class.

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

class StripIndexer {
 public:
  StripIndexer(const ClassSplit& split, SegmentIndex* out)
      : split_(split), out_(out), shift_(_mm_cvtsi32_si128(split.key_shift)) {
    for (int i = 0; i < 7; ++i) {
      // "Reaches t" is "is above t - 1"; an unused threshold is one that no key is above.
      limits_[i] = i + 1 < split.num_classes ? uint8_t(split.thresholds[i] - 1) : 255;
    }
  }

  template <class T>
  inline void add(const T* p, size_t strip, uint64_t exists = ~uint64_t{0}) {
    uint64_t* row = reinterpret_cast<uint64_t*>(out_->scratch) + strip * 8;
    row[0] = exists;
#if HWY_TARGET == HWY_AVX2
    // AVX2 compares signed bytes only: keys and limits are moved by 128.
    __m256i low, high;
    keys(p, &low, &high);
    const __m256i sign = _mm256_set1_epi8(-128);
    low = _mm256_xor_si256(low, sign);
    high = _mm256_xor_si256(high, sign);
    for (int i = 0; i < 7; ++i) {
      const __m256i limit = _mm256_set1_epi8(char(limits_[i] ^ 128));
      const uint32_t bits[2] = {
          uint32_t(_mm256_movemask_epi8(_mm256_cmpgt_epi8(low, limit))),
          uint32_t(_mm256_movemask_epi8(_mm256_cmpgt_epi8(high, limit)))};
      std::memcpy(row + i + 1, bits, 8);
    }
#else
    const __m512i k = keys(p);
    for (int i = 0; i < 7; ++i) {
      row[i + 1] = _mm512_cmpgt_epu8_mask(k, _mm512_set1_epi8(char(limits_[i])));
    }
#endif
  }

  void finish(size_t num_strips) {
    uint64_t* row = reinterpret_cast<uint64_t*>(out_->scratch);
#if HWY_TARGET == HWY_AVX3_DL
    __m512i totals = _mm512_setzero_si512();
    for (size_t strip = 0; strip < num_strips; ++strip, row += 8) {
      const __m512i reached = load512(row);
      const __m512i above = _mm512_maskz_alignr_epi64(0x7f, reached, reached, 1);
      const __m512i in_class = _mm512_andnot_si512(above, reached);
      _mm512_storeu_si512(row, in_class);
      store_totals(strip, totals);
      totals = _mm512_add_epi64(totals, _mm512_popcnt_epi64(in_class));
    }
    for (size_t strip = num_strips; strip <= kSegmentStrips; ++strip) store_totals(strip, totals);
#else
    uint16_t totals[kMaxClasses] = {};
    for (size_t strip = 0; strip < num_strips; ++strip, row += 8) {
      std::memcpy(out_->before[strip], totals, sizeof totals);
      for (int c = 0; c < 7; ++c) {
        row[c] &= ~row[c + 1];
        totals[c] += uint16_t(_mm_popcnt_u64(row[c]));
      }
      totals[7] += uint16_t(_mm_popcnt_u64(row[7]));
    }
    for (size_t strip = num_strips; strip <= kSegmentStrips; ++strip) {
      std::memcpy(out_->before[strip], totals, sizeof totals);
    }
#endif
  }

 private:
#if HWY_TARGET == HWY_AVX2
  template <class T>
  inline void keys(const T* p, __m256i* low, __m256i* high) const {
    if constexpr (sizeof(T) == 2) {
      *low = keys32(p);
      *high = keys32(p + 32);
    } else {
      alignas(32) uint8_t out[64];
      extract_keys(p, split_, out);
      *low = load256(out);
      *high = load256(out + 32);
    }
  }
  inline __m256i keys32(const uint16_t* p) const {
    const __m256i mask = _mm256_set1_epi16(split_.key_mask);
    const __m256i a = _mm256_and_si256(_mm256_srl_epi16(load256(p), shift_), mask);
    const __m256i b = _mm256_and_si256(_mm256_srl_epi16(load256(p + 16), shift_), mask);
    return _mm256_permute4x64_epi64(_mm256_packus_epi16(a, b), 0xd8);
  }
#else
  template <class T>
  inline __m512i keys(const T* p) const {
    if constexpr (sizeof(T) == 2) {
      const __m512i a = _mm512_srl_epi16(load512(p), shift_);
      const __m512i b = _mm512_srl_epi16(load512(p + 32), shift_);
#if HWY_TARGET == HWY_AVX3_DL
      const __m512i all = _mm512_permutex2var_epi8(a, load512(kEvenBytes), b);
#else
      const __m512i all = _mm512_inserti64x4(_mm512_castsi256_si512(_mm512_cvtepi16_epi8(a)),
                                             _mm512_cvtepi16_epi8(b), 1);
#endif
      return _mm512_and_si512(all, _mm512_set1_epi8(char(split_.key_mask)));
    } else {
      alignas(64) uint8_t out[64];
      extract_keys(p, split_, out);
      return load512(out);
    }
  }
#endif
#if HWY_TARGET == HWY_AVX3_DL
  inline void store_totals(size_t strip, __m512i totals) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out_->before[strip]), _mm512_cvtepi64_epi16(totals));
  }
  alignas(64) static constexpr uint8_t kEvenBytes[64] = {
      0,  2,  4,  6,  8,  10,  12,  14,  16,  18,  20,  22,  24,  26,  28,  30,
      32, 34, 36, 38, 40, 42,  44,  46,  48,  50,  52,  54,  56,  58,  60,  62,
      64, 66, 68, 70, 72, 74,  76,  78,  80,  82,  84,  86,  88,  90,  92,  94,
      96, 98, 100, 102, 104, 106, 108, 110, 112, 114, 116, 118, 120, 122, 124, 126};
#endif

  const ClassSplit split_;
  SegmentIndex* const out_;
  const __m128i shift_;
  uint8_t limits_[7];
};

// Elements of class `class_id` in a strip, as bits.
struct ClassMasks {
  const uint64_t* rows;
  uint8_t class_id;
  ClassMasks(const SegmentIndex& index, const ClassSplit&, uint8_t c)
      : rows(reinterpret_cast<const uint64_t*>(index.scratch)), class_id(c) {}
  inline uint64_t operator()(size_t strip) const { return rows[strip * 8 + class_id]; }
};

inline uint32_t count_below(uint64_t mask, uint32_t bit) {
  return uint32_t(_mm_popcnt_u64(_bzhi_u64(mask, bit)));
}

// Index of set bit number n.
inline uint32_t select_bit(uint64_t mask, uint32_t n) {
  return uint32_t(_tzcnt_u64(_pdep_u64(uint64_t{1} << n, mask)));
}
