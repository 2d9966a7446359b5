// Strips of 64 elements on NEON: keys stay bytes, classes are counted by compare and pairwise add,
// and a class's mask is made only for the strips that hold a change.
// Included once per target by simd.cpp, inside HWY_NAMESPACE.
//
// Scratch of a strip: its 64 keys.

struct Keys64 {
  uint8x16_t part[4];
};

inline Keys64 load_keys(const uint8_t* p) {
  return {{vld1q_u8(p), vld1q_u8(p + 16), vld1q_u8(p + 32), vld1q_u8(p + 48)}};
}

// One bit of each byte to 64 bits.
inline uint8x8_t gather_bits(uint8x16_t a, uint8x16_t b, uint8x16_t c, uint8x16_t d) {
  const uint8x16_t all = vpaddq_u8(vpaddq_u8(a, b), vpaddq_u8(c, d));
  return vget_low_u8(vpaddq_u8(all, all));
}

inline uint8x16_t bit_weights() { return vreinterpretq_u8_u64(vdupq_n_u64(0x8040201008040201ULL)); }

// Four vectors of 0x00 / 0xff to 64 bits.
inline uint8x8_t to_bits(uint8x16_t a, uint8x16_t b, uint8x16_t c, uint8x16_t d) {
  const uint8x16_t weights = bit_weights();
  return gather_bits(vandq_u8(a, weights), vandq_u8(b, weights), vandq_u8(c, weights),
                     vandq_u8(d, weights));
}
// The same of 0xff / 0x00.
inline uint8x8_t to_bits_of_not(uint8x16_t a, uint8x16_t b, uint8x16_t c, uint8x16_t d) {
  const uint8x16_t weights = bit_weights();
  return gather_bits(vbicq_u8(weights, a), vbicq_u8(weights, b), vbicq_u8(weights, c),
                     vbicq_u8(weights, d));
}

inline uint64_t as_word(uint8x8_t bits) { return vget_lane_u64(vreinterpret_u64_u8(bits), 0); }

// 16 elements: 0xff where a and b agree. All-ones lanes narrow by taking every other byte.
inline uint8x16_t same16(const uint8_t* a, const uint8_t* b) {
  return vceqq_u8(vld1q_u8(a), vld1q_u8(b));
}
inline uint8x16_t same16(const uint16_t* a, const uint16_t* b) {
  return vuzp1q_u8(vreinterpretq_u8_u16(vceqq_u16(vld1q_u16(a), vld1q_u16(b))),
                   vreinterpretq_u8_u16(vceqq_u16(vld1q_u16(a + 8), vld1q_u16(b + 8))));
}
inline uint16x8_t same8(const uint32_t* a, const uint32_t* b) {
  return vuzp1q_u16(vreinterpretq_u16_u32(vceqq_u32(vld1q_u32(a), vld1q_u32(b))),
                    vreinterpretq_u16_u32(vceqq_u32(vld1q_u32(a + 4), vld1q_u32(b + 4))));
}
inline uint8x16_t same16(const uint32_t* a, const uint32_t* b) {
  return vuzp1q_u8(vreinterpretq_u8_u16(same8(a, b)), vreinterpretq_u8_u16(same8(a + 8, b + 8)));
}
inline uint32x4_t same4(const uint64_t* a, const uint64_t* b) {
  return vuzp1q_u32(vreinterpretq_u32_u64(vceqq_u64(vld1q_u64(a), vld1q_u64(b))),
                    vreinterpretq_u32_u64(vceqq_u64(vld1q_u64(a + 2), vld1q_u64(b + 2))));
}
inline uint16x8_t same8(const uint64_t* a, const uint64_t* b) {
  return vuzp1q_u16(vreinterpretq_u16_u32(same4(a, b)), vreinterpretq_u16_u32(same4(a + 4, b + 4)));
}
inline uint8x16_t same16(const uint64_t* a, const uint64_t* b) {
  return vuzp1q_u8(vreinterpretq_u8_u16(same8(a, b)), vreinterpretq_u8_u16(same8(a + 8, b + 8)));
}

template <class T>
inline uint64_t diff_strip(const T* a, const T* b) {
  return as_word(to_bits_of_not(same16(a, b), same16(a + 16, b + 16), same16(a + 32, b + 32),
                                same16(a + 48, b + 48)));
}

// Searches want the counts of a class side by side; ranks are looked up one by one, and counts may
// stay as they come, those of a strip side by side.
enum class Counts : uint8_t { kOfAClass, kOfAStrip };

template <Counts kCounts>
class Indexer {
 public:
  // What is kept of a segment while others are worked on.
  struct State {
    uint16x8_t totals;
    uint16x8_t rows[8];
  };

  explicit Indexer(const ClassSplit& split)
      : split_(split),
        is_bf16_(split.key_shift == 7 && split.key_mask == 0xff),
        shift_(vdupq_n_s16(int16_t(-split.key_shift))),
        key_mask_(vdupq_n_u8(split.key_mask)) {
    for (int i = 0; i < 7; ++i) {
      // "Reaches t" is "is above t - 1"; an unused threshold is one that no key is above.
      limits_[i] = vdupq_n_u8(i + 1 < split.num_classes ? uint8_t(split.thresholds[i] - 1) : 255);
    }
  }

  // Goes on with strip number `strip` of a segment; 0 begins one.
  inline void open(SegmentIndex* out, State* state, size_t strip) {
    out_ = out;
    state_ = state;
    totals_ = strip == 0 ? vdupq_n_u16(0) : state->totals;
  }
  inline void close() { state_->totals = totals_; }

  template <class T>
  inline void add(const T* p, size_t strip, uint64_t exists = ~uint64_t{0}) {
    uint8_t* scratch = out_->scratch + strip * kStripElements;
    Keys64 keys;
    if constexpr (sizeof(T) == 2) {
      for (int i = 0; i < 4; ++i) keys.part[i] = keys16(p + 16 * i);
      for (int i = 0; i < 4; ++i) vst1q_u8(scratch + 16 * i, keys.part[i]);
    } else {
      extract_keys(p, split_, scratch);
      keys = load_keys(scratch);
    }
    uint16x8_t counts = count_classes(keys);
    // Elements past the end were given key 0, so they were counted in class 0.
    if (exists != ~uint64_t{0}) {
      const uint16_t padding = uint16_t(__builtin_popcountll(~exists));
      counts = vsetq_lane_u16(uint16_t(vgetq_lane_u16(counts, 0) - padding), counts, 0);
    }
    if constexpr (kCounts == Counts::kOfAStrip) {
      vst1q_u16(&out_->before[0][0] + strip * kMaxClasses, counts);
    } else {
      state_->rows[strip % 8] = totals_;
      totals_ = vaddq_u16(totals_, counts);
      if (strip % 8 == 7) store_columns(strip - 7);
    }
  }

  void finish(size_t num_strips) {
    for (size_t strip = num_strips; strip < kSegmentStrips; ++strip) {
      state_->rows[strip % 8] = totals_;
      if (strip % 8 == 7) store_columns(strip - 7);
    }
    vst1q_u16(out_->total, totals_);
  }
  // Strips may have come in any order.
  void finish_for_rank(size_t num_strips) {
    uint16_t* before = &out_->before[0][0];
    for (size_t strip = 0; strip < num_strips; ++strip, before += kMaxClasses) {
      const uint16x8_t counts = vld1q_u16(before);
      vst1q_u16(before, totals_);
      totals_ = vaddq_u16(totals_, counts);
    }
    vst1q_u16(out_->total, totals_);
  }

 private:
  inline uint8x16_t keys16(const uint16_t* p) const {
    const uint16x8_t a = vld1q_u16(p), b = vld1q_u16(p + 8);
    if (is_bf16_) return vshrn_high_n_u16(vshrn_n_u16(a, 7), b, 7);
    const uint8x16_t low = vreinterpretq_u8_u16(vshlq_u16(a, shift_)),
                     high = vreinterpretq_u8_u16(vshlq_u16(b, shift_));
    return vandq_u8(vuzp1q_u8(low, high), key_mask_);
  }

  // Compares give -1 per element that reaches a threshold; pairwise adds fold the 64 lanes of all
  // seven thresholds at once; neighbours' difference is the count of a class.
  inline uint16x8_t count_classes(const Keys64& keys) const {
    uint8x16_t reached[8];
    for (int i = 0; i < 7; ++i) {
      reached[i] = vaddq_u8(
          vaddq_u8(vcgtq_u8(keys.part[0], limits_[i]), vcgtq_u8(keys.part[1], limits_[i])),
          vaddq_u8(vcgtq_u8(keys.part[2], limits_[i]), vcgtq_u8(keys.part[3], limits_[i])));
    }
    reached[7] = vdupq_n_u8(0);
    const uint8x16_t a =
        vpaddq_u8(vpaddq_u8(reached[0], reached[1]), vpaddq_u8(reached[2], reached[3]));
    const uint8x16_t b =
        vpaddq_u8(vpaddq_u8(reached[4], reached[5]), vpaddq_u8(reached[6], reached[7]));
    const uint8x16_t pairs = vpaddq_u8(a, b);
    const uint8x8_t above = vget_low_u8(vpaddq_u8(pairs, pairs));
    const uint8x8_t from = vext_u8(vdup_n_u8(uint8_t(-64)), above, 7);
    return vmovl_u8(vsub_u8(above, from));
  }

  // Eight rows (strips) of eight classes become eight columns.
  inline void store_columns(size_t strip) {
    uint32x4_t low[4], high[4];  // pairs of strips; classes in order
    for (int i = 0; i < 4; ++i) {
      low[i] = vreinterpretq_u32_u16(vzip1q_u16(state_->rows[2 * i], state_->rows[2 * i + 1]));
      high[i] = vreinterpretq_u32_u16(vzip2q_u16(state_->rows[2 * i], state_->rows[2 * i + 1]));
    }
    store_four(low, 0, strip);
    store_four(high, 4, strip);
  }
  inline void store_four(const uint32x4_t* pairs, size_t c, size_t strip) {
    const uint64x2_t a = vreinterpretq_u64_u32(vzip1q_u32(pairs[0], pairs[1]));
    const uint64x2_t b = vreinterpretq_u64_u32(vzip2q_u32(pairs[0], pairs[1]));
    const uint64x2_t d = vreinterpretq_u64_u32(vzip1q_u32(pairs[2], pairs[3]));
    const uint64x2_t e = vreinterpretq_u64_u32(vzip2q_u32(pairs[2], pairs[3]));
    vst1q_u16(&out_->before[c][strip], vreinterpretq_u16_u64(vzip1q_u64(a, d)));
    vst1q_u16(&out_->before[c + 1][strip], vreinterpretq_u16_u64(vzip2q_u64(a, d)));
    vst1q_u16(&out_->before[c + 2][strip], vreinterpretq_u16_u64(vzip1q_u64(b, e)));
    vst1q_u16(&out_->before[c + 3][strip], vreinterpretq_u16_u64(vzip2q_u64(b, e)));
  }

  const ClassSplit split_;
  SegmentIndex* out_ = nullptr;
  State* state_ = nullptr;
  const bool is_bf16_;  // whose keys two instructions narrow
  const int16x8_t shift_;
  const uint8x16_t key_mask_;
  uint8x16_t limits_[7];
  uint16x8_t totals_;
};
using StripIndexer = Indexer<Counts::kOfAClass>;
using RankIndexer = Indexer<Counts::kOfAStrip>;

// Elements of class `class_id` in a strip, as bits: a class is a range of keys.
struct ClassMasks {
  const SegmentIndex& index;
  uint8x16_t low, width;
  ClassMasks(const SegmentIndex& i, const ClassSplit& split, uint8_t c) : index(i) {
    const uint8_t first = c == 0 ? 0 : split.thresholds[c - 1];
    const uint8_t last = c + 1 < split.num_classes ? uint8_t(split.thresholds[c] - 1) : 255;
    low = vdupq_n_u8(first);
    width = vdupq_n_u8(uint8_t(last - first));
  }
  inline uint64_t operator()(size_t strip) const {
    const Keys64 keys = load_keys(index.scratch + strip * kStripElements);
    uint8x16_t in[4];
    for (int i = 0; i < 4; ++i) in[i] = vcleq_u8(vsubq_u8(keys.part[i], low), width);
    return as_word(to_bits(in[0], in[1], in[2], in[3]));
  }
};

// How many of sixteen values are <= target.
inline uint32_t count_not_above(const uint16_t* values, uint16_t target) {
  const uint16x8_t limit = vdupq_n_u16(target);
  const uint16x8_t hits =
      vaddq_u16(vcleq_u16(vld1q_u16(values), limit), vcleq_u16(vld1q_u16(values + 8), limit));
  return uint16_t(-vaddvq_u16(hits));
}

inline uint64_t byte_counts(uint64_t mask) {
  return vget_lane_u64(vreinterpret_u64_u8(vcnt_u8(vcreate_u8(mask))), 0);
}

inline uint32_t count_below(uint64_t mask, uint32_t bit) {
  return uint32_t((byte_counts(mask & ((uint64_t{1} << bit) - 1)) * 0x0101010101010101ULL) >> 56);
}

// From what a RankIndexer left.
inline void counts_before_strip(const SegmentIndex& index, size_t strip, uint16_t* counts) {
  vst1q_u16(counts, vld1q_u16(&index.before[0][0] + strip * kMaxClasses));
}
inline uint16_t rank_of(const SegmentIndex& index, const ClassSplit& split, uint8_t class_id,
                        size_t strip, uint32_t bit) {
  const uint16_t* const before = &index.before[0][0] + strip * kMaxClasses;
  return uint16_t(before[class_id] + count_below(ClassMasks(index, split, class_id)(strip), bit));
}

// Index of set bit number n: prefix counts of the bytes by one multiply, then a table for the byte.
inline uint32_t select_bit(uint64_t mask, uint32_t n) {
  constexpr uint64_t kOnes = 0x0101010101010101ULL;
  const uint64_t prefix = byte_counts(mask) * kOnes;
  const uint64_t reached = (prefix + (127 - n) * kOnes) & (kOnes << 7);
  const uint32_t byte = uint32_t(__builtin_ctzll(reached)) & 56;
  const uint32_t left = (n - uint32_t((prefix << 8) >> byte)) & 7;
  return byte + kSelectInByte[(mask >> byte) & 255][left];
}
