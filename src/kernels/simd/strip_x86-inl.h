// Strips of 64 elements on AVX2 and AVX-512: a class is a 64-bit mask, a rank is a popcount.
// Included once per target by simd.cpp, inside HWY_NAMESPACE.
//
// Scratch of a strip: eight words, a mask for each class. Without VBMI, while scanning, word i >= 1
// holds the elements whose key reaches threshold i, word 0 those that exist.

class StripIndexer {
 public:
  struct State {};  // all is in the index

  explicit StripIndexer(const ClassSplit& split)
      : split_(split), shift_(_mm_cvtsi32_si128(split.key_shift)) {
    for (int i = 0; i < 7; ++i) {
      // "Reaches t" is "is above t - 1"; an unused threshold is one that no key is above.
      limits_[i] = i + 1 < split.num_classes ? uint8_t(split.thresholds[i] - 1) : 255;
    }
#if HWY_TARGET == HWY_AVX3_DL
    for (int part = 0; part < 4; ++part) {
      const __m512i k = _mm512_add_epi8(load512(&kCountUp), _mm512_set1_epi8(char(64 * part)));
      __m512i bit = _mm512_set1_epi8(1);
      for (const uint8_t limit : limits_) {
        const __m512i last = _mm512_set1_epi8(char(limit));
        bit = _mm512_mask_add_epi8(bit, _mm512_cmpgt_epu8_mask(k, last), bit, bit);
      }
      bit_of_key_[part] = bit;
    }
#endif
  }

  // Goes on with a segment.
  inline void open(SegmentIndex* out, State*, size_t) { out_ = out; }
  inline void close() {}

  template <class T>
  inline void add(const T* p, size_t strip, uint64_t exists = ~uint64_t{0}) {
    uint64_t* row = reinterpret_cast<uint64_t*>(out_->scratch) + strip * 8;
#if HWY_TARGET == HWY_AVX2
    row[0] = exists;
    // AVX2 compares signed bytes only: keys and limits are moved by 128.
    __m256i low, high;
    keys(p, &low, &high);
    const __m256i sign = _mm256_set1_epi8(-128);
    low = _mm256_xor_si256(low, sign);
    high = _mm256_xor_si256(high, sign);
    for (int i = 0; i < 7; ++i) {
      const __m256i limit = _mm256_set1_epi8(char(limits_[i] ^ 128));
      const uint32_t bits[2] = {uint32_t(_mm256_movemask_epi8(_mm256_cmpgt_epi8(low, limit))),
                                uint32_t(_mm256_movemask_epi8(_mm256_cmpgt_epi8(high, limit)))};
      std::memcpy(row + i + 1, bits, 8);
    }
#elif HWY_TARGET == HWY_AVX3
    row[0] = exists;
    const __m512i k = keys(p);
    for (int i = 0; i < 7; ++i) {
      row[i + 1] = _mm512_cmpgt_epu8_mask(k, _mm512_set1_epi8(char(limits_[i])));
    }
#else
    // A byte for each element, with the bit of its class. Transposing blocks of 8 x 8 bits turns
    // their elements around; then each class has its eight bytes brought together.
    const __m512i k = keys(p);
    const __m512i bits = _mm512_mask_blend_epi8(
        _mm512_movepi8_mask(k), _mm512_permutex2var_epi8(bit_of_key_[0], k, bit_of_key_[1]),
        _mm512_permutex2var_epi8(bit_of_key_[2], k, bit_of_key_[3]));
    const __m512i masks = _mm512_permutexvar_epi8(load512(&kEveryEighth), transposed(bits));
    _mm512_store_si512(row, _mm512_and_si512(masks, _mm512_set1_epi64(int64_t(exists))));
#endif
  }

  void finish(size_t num_strips) {
    uint64_t* row = reinterpret_cast<uint64_t*>(out_->scratch);
    // Short segments: strips that do not exist have no elements.
    const size_t rounded = (num_strips + 7) / 8 * 8;
    std::memset(row + num_strips * 8, 0, (rounded - num_strips) * 64);
    __m128i totals = _mm_setzero_si128();
    for (size_t strip = 0; strip < rounded; strip += 8) {
      __m128i before[8];
      for (int i = 0; i < 8; ++i, row += 8) {
        before[i] = totals;
        totals = _mm_add_epi16(totals, count_row(row));
      }
      store_columns(before, strip);
    }
    for (size_t strip = rounded; strip < kSegmentStrips; strip += 8) {
      const __m128i before[8] = {totals, totals, totals, totals, totals, totals, totals, totals};
      store_columns(before, strip);
    }
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out_->total), totals);
  }

#if HWY_TARGET == HWY_AVX2
  void finish_for_rank(size_t num_strips) { finish(num_strips); }
#else
  // Ranks are looked up one by one: no columns; the counts of four strips share a word.
  void finish_for_rank(size_t num_strips) {
    uint64_t* row = reinterpret_cast<uint64_t*>(out_->scratch);
    const size_t rounded = (num_strips + 3) / 4 * 4;
    std::memset(row + num_strips * 8, 0, (rounded - num_strips) * 64);
    uint8_t* before = reinterpret_cast<uint8_t*>(out_->before);
    __m512i totals = _mm512_setzero_si512();
    for (size_t strip = 0; strip < rounded; strip += 4, row += 32, before += 64) {
      const __m512i first = totals;
      const __m512i second = _mm512_add_epi64(first, popcount(classes_of(row)));
      const __m512i third = _mm512_add_epi64(second, popcount(classes_of(row + 8)));
      const __m512i fourth = _mm512_add_epi64(third, popcount(classes_of(row + 16)));
      totals = _mm512_add_epi64(fourth, popcount(classes_of(row + 24)));
      const __m512i low = _mm512_or_si512(first, _mm512_slli_epi64(second, 16));
      const __m512i high = _mm512_or_si512(third, _mm512_slli_epi64(fourth, 16));
      _mm512_storeu_si512(before, _mm512_or_si512(low, _mm512_slli_epi64(high, 32)));
    }
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out_->total), _mm512_cvtepi64_epi16(totals));
  }
#endif

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
      const __m512i shift = _mm512_set1_epi16(split_.key_shift);  // cheaper than by one number
      const __m512i a = _mm512_srlv_epi16(load512(p), shift);
      const __m512i b = _mm512_srlv_epi16(load512(p + 32), shift);
#if HWY_TARGET == HWY_AVX3_DL
      const __m512i all = _mm512_permutex2var_epi8(a, load512(&kEvenTurned), b);
#else
      const __m512i all = _mm512_inserti64x4(_mm512_castsi256_si512(_mm512_cvtepi16_epi8(a)),
                                             _mm512_cvtepi16_epi8(b), 1);
#endif
      return _mm512_and_si512(all, _mm512_set1_epi8(char(split_.key_mask)));
    } else {
      alignas(64) uint8_t out[64];
      extract_keys(p, split_, out);
#if HWY_TARGET == HWY_AVX3_DL
      return _mm512_permutexvar_epi8(load512(&kTurned), load512(out));
#else
      return load512(out);
#endif
    }
  }
#endif
#if HWY_TARGET != HWY_AVX2
  // The eight masks of a strip. Without VBMI, turns "reaches threshold i" into them, in place.
  static inline __m512i classes_of(uint64_t* row) {
    const __m512i masks = load512(row);
#if HWY_TARGET == HWY_AVX3_DL
    return masks;
#else
    const __m512i classes =
        _mm512_andnot_si512(_mm512_maskz_alignr_epi64(0x7f, masks, masks, 1), masks);
    _mm512_store_si512(row, classes);
    return classes;
#endif
  }
#endif
  // The eight counts of a strip. On AVX2, turns "reaches threshold i" into masks first, in place.
  static inline __m128i count_row(uint64_t* row) {
#if HWY_TARGET == HWY_AVX2
    const __m256i low = load256(row), high = load256(row + 4);
    const __m256i next_high = _mm256_permute4x64_epi64(high, 0x39);  // 1 2 3 0
    const __m256i next_low = _mm256_blend_epi32(_mm256_permute4x64_epi64(low, 0x39),
                                                _mm256_permute4x64_epi64(high, 0x00), 0xc0);
    const __m256i zero = _mm256_setzero_si256();
    const __m256i classes_low = _mm256_andnot_si256(next_low, low);
    const __m256i classes_high =
        _mm256_andnot_si256(_mm256_blend_epi32(next_high, zero, 0xc0), high);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(row), classes_low);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(row + 4), classes_high);
    // Counts sit in the low words of 64-bit lanes; two packs bring them together.
    const __m256i pairs = _mm256_packus_epi32(popcount(classes_low), popcount(classes_high));
    const __m256i quads = _mm256_packus_epi32(pairs, pairs);
    return _mm_unpacklo_epi32(_mm256_castsi256_si128(quads), _mm256_extracti128_si256(quads, 1));
#else
    return _mm512_cvtepi64_epi16(popcount(classes_of(row)));
#endif
  }
#if HWY_TARGET == HWY_AVX3_DL
  // Of each eight bytes: byte j gets their bits number j, the last byte's as the lowest. In
  // assembler: this target of Highway does not name the instruction (simd_kernels() checks for it).
  static inline __m512i transposed(__m512i bytes) {
    __m512i out;
    asm("vgf2p8affineqb $0, %2, %1, %0"
        : "=v"(out)
        : "v"(_mm512_set1_epi64(int64_t(0x8040201008040201))), "v"(bytes));
    return out;
  }
  static inline __m512i popcount(__m512i x) { return _mm512_popcnt_epi64(x); }
#elif HWY_TARGET == HWY_AVX3
  static inline __m512i popcount(__m512i x) {
    return hwy::HWY_NAMESPACE::PopulationCount(hwy::HWY_NAMESPACE::Vec512<uint64_t>{x}).raw;
  }
#else
  static inline __m256i popcount(__m256i x) {
    const __m256i nibbles = _mm256_set1_epi8(15);
    const __m256i table = _mm256_setr_epi8(0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4,  //
                                           0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4);
    const __m256i low = _mm256_shuffle_epi8(table, _mm256_and_si256(x, nibbles));
    const __m256i high =
        _mm256_shuffle_epi8(table, _mm256_and_si256(_mm256_srli_epi16(x, 4), nibbles));
    return _mm256_sad_epu8(_mm256_add_epi8(low, high), _mm256_setzero_si256());
  }
#endif

  // Eight rows (strips) of eight classes become eight columns.
  inline void store_columns(const __m128i* r, size_t strip) {
    const __m128i a0 = _mm_unpacklo_epi16(r[0], r[1]), a1 = _mm_unpackhi_epi16(r[0], r[1]);
    const __m128i a2 = _mm_unpacklo_epi16(r[2], r[3]), a3 = _mm_unpackhi_epi16(r[2], r[3]);
    const __m128i a4 = _mm_unpacklo_epi16(r[4], r[5]), a5 = _mm_unpackhi_epi16(r[4], r[5]);
    const __m128i a6 = _mm_unpacklo_epi16(r[6], r[7]), a7 = _mm_unpackhi_epi16(r[6], r[7]);
    const __m128i b0 = _mm_unpacklo_epi32(a0, a2), b1 = _mm_unpackhi_epi32(a0, a2);
    const __m128i b2 = _mm_unpacklo_epi32(a1, a3), b3 = _mm_unpackhi_epi32(a1, a3);
    const __m128i b4 = _mm_unpacklo_epi32(a4, a6), b5 = _mm_unpackhi_epi32(a4, a6);
    const __m128i b6 = _mm_unpacklo_epi32(a5, a7), b7 = _mm_unpackhi_epi32(a5, a7);
    const __m128i columns[8] = {_mm_unpacklo_epi64(b0, b4), _mm_unpackhi_epi64(b0, b4),
                                _mm_unpacklo_epi64(b1, b5), _mm_unpackhi_epi64(b1, b5),
                                _mm_unpacklo_epi64(b2, b6), _mm_unpackhi_epi64(b2, b6),
                                _mm_unpacklo_epi64(b3, b7), _mm_unpackhi_epi64(b3, b7)};
    for (size_t c = 0; c < kMaxClasses; ++c) {
      _mm_storeu_si128(reinterpret_cast<__m128i*>(&out_->before[c][strip]), columns[c]);
    }
  }

  const ClassSplit split_;
  SegmentIndex* out_ = nullptr;
  const __m128i shift_;
  uint8_t limits_[7];
#if HWY_TARGET == HWY_AVX3_DL
  __m512i bit_of_key_[4];
#endif
};
using RankIndexer = StripIndexer;

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

#if HWY_TARGET == HWY_AVX2
inline void counts_before_strip(const SegmentIndex& index, size_t strip, uint16_t* counts) {
  for (size_t c = 0; c < kMaxClasses; ++c) counts[c] = index.before[c][strip];
}
inline uint16_t rank_of(const SegmentIndex& index, const ClassSplit& split, uint8_t class_id,
                        size_t strip, uint32_t bit) {
  return uint16_t(index.before[class_id][strip] +
                  count_below(ClassMasks(index, split, class_id)(strip), bit));
}
#else
// From what finish_for_rank() left.
inline void counts_before_strip(const SegmentIndex& index, size_t strip, uint16_t* counts) {
  static_assert(kMaxClasses == 8);
  const __m512i before = _mm512_load_si512(&index.before[0][0] + strip / 4 * 32);
  const __m128i lane = _mm_cvtsi64_si128(int64_t(strip % 4 * 16));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(counts),
                   _mm512_cvtepi64_epi16(_mm512_srl_epi64(before, lane)));
}
inline uint16_t rank_of(const SegmentIndex& index, const ClassSplit& split, uint8_t class_id,
                        size_t strip, uint32_t bit) {
  const uint16_t* before = &index.before[0][0] + strip / 4 * 32 + strip % 4;
  return uint16_t(before[class_id * 4] +
                  count_below(ClassMasks(index, split, class_id)(strip), bit));
}
#endif

// How many of sixteen values, all below 2^15, are <= target.
inline uint32_t count_not_above(const uint16_t* values, uint16_t target) {
#if HWY_TARGET == HWY_AVX2
  const __m256i above = _mm256_cmpgt_epi16(load256(values), _mm256_set1_epi16(int16_t(target)));
  return 16 - uint32_t(_mm_popcnt_u32(uint32_t(_mm256_movemask_epi8(above)))) / 2;
#else
  return uint32_t(
      _mm_popcnt_u32(_mm256_cmple_epu16_mask(load256(values), _mm256_set1_epi16(int16_t(target)))));
#endif
}

// Index of set bit number n.
inline uint32_t select_bit(uint64_t mask, uint32_t n) {
  return uint32_t(_tzcnt_u64(_pdep_u64(uint64_t{1} << n, mask)));
}
