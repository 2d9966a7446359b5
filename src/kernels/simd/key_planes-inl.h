// Keys and what is left of elements, 64 to a row and eight rows at a time: codes of the same column
// of all rows are packed by shifts alone. Included once per target by simd.cpp, inside
// HWY_NAMESPACE.

namespace hn = hwy::HWY_NAMESPACE;
using PlaneTag = hn::CappedTag<uint8_t, kRowElements>;
using Plane = hn::Vec<PlaneTag>;

// Pairs of bytes to two planes, and back. ld2 and st2 take longer on Neoverse than what they save.
inline void load_pairs(const uint8_t* from, Plane& first, Plane& second) {
  const PlaneTag d;
#if HWY_TARGET == HWY_NEON
  const Plane a = hn::LoadU(d, from), b = hn::LoadU(d, from + hn::Lanes(d));
  first = hn::ConcatEven(d, b, a), second = hn::ConcatOdd(d, b, a);
#else
  hn::LoadInterleaved2(d, from, first, second);
#endif
}
inline void store_pairs(Plane first, Plane second, uint8_t* to) {
  const PlaneTag d;
#if HWY_TARGET == HWY_NEON
  hn::StoreU(hn::InterleaveLower(d, first, second), d, to);
  hn::StoreU(hn::InterleaveUpper(d, first, second), d, to + hn::Lanes(d));
#else
  hn::StoreInterleaved2(first, second, d, to);
#endif
}

// The top two bytes of a vector of elements; those below, if there are any, go to `low_plane`.
template <KeyForm kForm>
inline void load_tops(const uint8_t* from, [[maybe_unused]] uint8_t* low_plane, Plane& low,
                      Plane& high) {
  if constexpr (kForm == KeyForm::k8of32) {
    Plane first, second;
    hn::LoadInterleaved4(PlaneTag(), from, first, second, low, high);
    if (low_plane != nullptr) store_pairs(first, second, low_plane);
  } else {
    load_pairs(from, low, high);
  }
}

template <KeyForm kForm>
inline Plane keys_of(Plane low, Plane high) {
  const PlaneTag d;
  if constexpr (kForm == KeyForm::k5of16) {
    return hn::And(hn::ShiftRight<2>(high), hn::Set(d, 31));
  } else {
#if HWY_TARGET == HWY_NEON
    return Plane(vsriq_n_u8(vaddq_u8(high.raw, high.raw), low.raw, 7));
#else
    return hn::Or(hn::Add(high, high), hn::ShiftRight<7>(low));
#endif
  }
}

// The keys alone.
template <KeyForm kForm>
inline Plane load_keys_of(const uint8_t* from) {
#if HWY_TARGET == HWY_NEON
  if constexpr (kForm == KeyForm::k8of16) {
    const auto* words = reinterpret_cast<const uint16_t*>(from);
    return Plane(vshrn_high_n_u16(vshrn_n_u16(vld1q_u16(words), 7), vld1q_u16(words + 8), 7));
  }
#endif
  Plane low, high;
  load_tops<kForm>(from, nullptr, low, high);
  return keys_of<kForm>(low, high);
}

inline Plane bits_of(uint8_t mask, Plane ones, Plane zeros) {
  const Plane m = hn::Set(PlaneTag(), mask);
  return hn::Or(hn::And(m, ones), hn::AndNot(m, zeros));
}

// Codes, or other values of three bits, go by columns: a vector of each row of a group.

// Where the far keys of a group are. Bit i of a word: element i of the row is one.
class FarBits {
 public:
  // The codes of the column that begins at element `begin` of the rows.
  void add(const Plane* codes, size_t begin) {
#if HWY_TARGET == HWY_NEON
    const uint8x16_t far = vdupq_n_u8(kFarKey), weights = bit_weights();
    uint8x16_t bits[kGroupRows];
    for (size_t row = 0; row < kGroupRows; ++row) {
      bits[row] = vandq_u8(vceqq_u8(codes[row].raw, far), weights);
    }
    for (size_t n = kGroupRows / 2; n != 0; n /= 2) {
      for (size_t i = 0; i < n; ++i) bits[i] = vpaddq_u8(bits[2 * i], bits[2 * i + 1]);
    }
    vst1q_u8(columns_ + begin, bits[0]);  // sixteen bits of each row
#else
    const PlaneTag d;
    for (size_t row = 0; row < kGroupRows; ++row) {
      const auto far = hn::Eq(codes[row], hn::Set(d, kFarKey));
      hn::StoreMaskBits(d, far, bytes_ + row * sizeof(uint64_t) + begin / 8);
    }
#endif
  }

  // Writes the places, after all columns; the first element of the group is at `base`. Returns
  // their end. Vector stores may run over it, by a row at most.
  uint16_t* write_places(size_t base, uint16_t* out) const {
    uint64_t words[kGroupRows];
#if HWY_TARGET == HWY_NEON
    const auto* columns = reinterpret_cast<const uint16_t*>(columns_);
    const uint16x8x2_t left = vzipq_u16(vld1q_u16(columns), vld1q_u16(columns + 8));
    const uint16x8x2_t right = vzipq_u16(vld1q_u16(columns + 16), vld1q_u16(columns + 24));
    for (size_t half = 0; half < 2; ++half) {
      const uint32x4x2_t rows =
          vzipq_u32(vreinterpretq_u32_u16(left.val[half]), vreinterpretq_u32_u16(right.val[half]));
      vst1q_u64(words + 4 * half, vreinterpretq_u64_u32(rows.val[0]));
      vst1q_u64(words + 4 * half + 2, vreinterpretq_u64_u32(rows.val[1]));
    }
#else
    std::memcpy(words, bytes_, sizeof words);
#endif
    for (size_t row = 0; row < kGroupRows; ++row) {
      out = write_positions(words[row], base + row * kRowElements, out);
    }
    return out;
  }

 private:
#if HWY_TARGET == HWY_NEON
  alignas(16) uint8_t columns_[kRowElements];
#else
  uint8_t bytes_[kGroupRows * sizeof(uint64_t)];
#endif
};

// Far keys wait for those of some groups: how many they are is a branch that nobody predicts.
constexpr size_t kBatchElements = 8 * kGroupElements;
constexpr size_t kMaxPlaces = kBatchElements + kRowElements;

// The bits of `a` below kBit, which are all it has, and those of `b` above. Shift and insert is one
// instruction on Arm.
template <int kBit>
inline Plane join_bits(Plane a, Plane b) {
#if HWY_TARGET == HWY_NEON
  return Plane(vsliq_n_u8(a.raw, b.raw, kBit));
#else
  return hn::Or(a, hn::ShiftLeft<kBit>(b));
#endif
}

inline void pack_column(const Plane* c, uint8_t* out) {
  const PlaneTag d;
  hn::StoreU(join_bits<6>(join_bits<3>(c[0], c[1]), c[6]), d, out);
  hn::StoreU(join_bits<6>(join_bits<3>(c[2], c[3]), c[7]), d, out + kRowElements);
  const Plane tops = join_bits<1>(hn::ShiftRight<2>(c[6]), hn::ShiftRight<2>(c[7]));
  hn::StoreU(join_bits<6>(join_bits<3>(c[4], c[5]), tops), d, out + 2 * kRowElements);
}

inline void unpack_column(const uint8_t* in, Plane* c) {
  const PlaneTag d;
  const Plane four = hn::Set(d, 4), seven = hn::Set(d, 7);
  const Plane x = hn::LoadU(d, in), y = hn::LoadU(d, in + kRowElements),
              z = hn::LoadU(d, in + 2 * kRowElements);
  c[0] = hn::And(x, seven), c[1] = hn::And(hn::ShiftRight<3>(x), seven);
  c[2] = hn::And(y, seven), c[3] = hn::And(hn::ShiftRight<3>(y), seven);
  c[4] = hn::And(z, seven), c[5] = hn::And(hn::ShiftRight<3>(z), seven);
  c[6] = hn::Or(hn::ShiftRight<6>(x), hn::And(hn::ShiftRight<4>(z), four));
  c[7] = hn::Or(hn::ShiftRight<6>(y), hn::And(hn::ShiftRight<5>(z), four));
}

template <KeyForm kForm>
size_t count_far(const void* data, size_t n, uint8_t base) noexcept {
  const PlaneTag d;
  constexpr size_t kWidth = key_planes::width(kForm), kLanes = hn::MaxLanes(PlaneTag());
  const auto* from = static_cast<const uint8_t*>(data);
  const Plane first = hn::Set(d, base), last = hn::Set(d, kNearKeys - 1);
  uint64_t total = 0;
  size_t at = 0;
  while (at + kRowElements <= n) {
    // A byte counts up to 255; true is all ones, which is minus one.
    Plane counts = hn::Zero(d);
    const size_t end = at + HWY_MIN(size_t{255}, (n - at) / kLanes) * kLanes;
    for (; at < end; at += kLanes) {
      const Plane distance = hn::Sub(load_keys_of<kForm>(from + at * kWidth), first);
      counts = hn::Sub(counts, hn::VecFromMask(d, hn::Gt(distance, last)));
    }
    const hn::Repartition<uint64_t, PlaneTag> words;
    total += hn::GetLane(hn::SumOfLanes(words, hn::SumsOf8(counts)));
  }
  for (; at < n; ++at) {
    const auto parts = key_planes::split(kForm, key_planes::load_top(kForm, from + at * kWidth));
    total += key_planes::code_of(parts.key, base) == kFarKey;
  }
  return size_t(total);
}

template <KeyForm kForm>
size_t split_keys(const void* data, size_t n, uint8_t base, uint8_t* planes,
                  uint8_t* far) noexcept {
  const PlaneTag d;
  constexpr size_t kWidth = key_planes::width(kForm), kLanes = hn::MaxLanes(PlaneTag());
  constexpr bool kHasHigh = kForm == KeyForm::k5of16;
  const auto* from = static_cast<const uint8_t*>(data);
  const key_planes::Planes<uint8_t> out(kForm, n, planes);
  const Plane first = hn::Set(d, base), far_key = hn::Set(d, kFarKey);
  uint16_t places[kMaxPlaces];
  size_t num_far = 0;
  const size_t full = n - n % kGroupElements;
  for (size_t batch = 0; batch < full; batch += kBatchElements) {
    uint16_t* places_end = places;
    const size_t batch_end = HWY_MIN(full, batch + kBatchElements);
    for (size_t at = batch; at < batch_end; at += kGroupElements) {
      const size_t packed = key_planes::packed_bytes(at);
      FarBits far_bits;
      for (size_t begin = 0; begin < kRowElements; begin += kLanes) {
        Plane codes[kGroupRows], high[kGroupRows];
        for (size_t row = 0; row < kGroupRows; ++row) {
          const size_t i = at + row * kRowElements + begin;
          Plane low, top;
          load_tops<kForm>(from + i * kWidth, out.low + i * (kWidth - 2), low, top);
          if constexpr (kHasHigh) {
            hn::StoreU(low, d, out.middle + i);
            high[row] =
                hn::Or(hn::And(hn::ShiftRight<5>(top), hn::Set(d, 4)), hn::And(top, hn::Set(d, 3)));
          } else {
            hn::StoreU(bits_of(0x80, top, low), d, out.middle + i);
          }
          codes[row] = hn::Min(hn::Sub(keys_of<kForm>(low, top), first), far_key);
        }
        pack_column(codes, out.codes + packed + begin);
        if constexpr (kHasHigh) pack_column(high, out.high + packed + begin);
        far_bits.add(codes, begin);
      }
      places_end = far_bits.write_places(at - batch, places_end);
    }
    for (const uint16_t* place = places; place != places_end; ++place) {
      const uint8_t* const element = from + (batch + *place) * kWidth;
      far[num_far++] = key_planes::split(kForm, key_planes::load_top(kForm, element)).key;
    }
  }
  if (full < n) {
    num_far += key_planes::split_group(kForm, from, full, n, n, base, planes, far + num_far);
  }
  return num_far;
}

// A vector of elements from their keys and what else they consist of.
template <KeyForm kForm>
inline void store_joined(Plane keys, Plane middle, [[maybe_unused]] const uint8_t* high,
                         [[maybe_unused]] const uint8_t* low_plane, uint8_t* to) {
  const PlaneTag d;
  if constexpr (kForm == KeyForm::k5of16) {
    const Plane three = hn::Load(d, high);
    const Plane sign = hn::ShiftLeft<5>(hn::And(three, hn::Set(d, 4)));
    const Plane key = hn::And(hn::ShiftLeft<2>(keys), hn::Set(d, 31 << 2));  // a far one may be 32
    const Plane top = hn::Or(sign, hn::Or(key, hn::And(three, hn::Set(d, 3))));
    store_pairs(middle, top, to);
  } else {
    const Plane low = bits_of(0x7f, middle, hn::ShiftLeft<7>(keys));
    const Plane top = bits_of(0x80, middle, hn::ShiftRight<1>(keys));
    if constexpr (kForm == KeyForm::k8of32) {
      Plane a, b;
      load_pairs(low_plane, a, b);
      hn::StoreInterleaved4(a, b, low, top, d, to);
    } else {
      store_pairs(low, top, to);
    }
  }
}

template <KeyForm kForm>
bool join_keys(const uint8_t* planes, const uint8_t* far, size_t num_far, uint8_t base, size_t n,
               void* data) noexcept {
  const PlaneTag d;
  constexpr size_t kWidth = key_planes::width(kForm), kLanes = hn::MaxLanes(PlaneTag());
  constexpr bool kHasHigh = kForm == KeyForm::k5of16;
  auto* const to = static_cast<uint8_t*>(data);
  const key_planes::Planes<const uint8_t> in(kForm, n, planes);
  const Plane first = hn::Set(d, base);
  alignas(64) uint8_t keys[kGroupElements], high[kHasHigh ? kGroupElements : 1];
  uint16_t places[kMaxPlaces];
  key_planes::FarKeys left{far, far + num_far};
  bool good = true;
  const size_t full = n - n % kGroupElements;
  for (size_t batch = 0; batch < full; batch += kBatchElements) {
    uint16_t* places_end = places;
    const size_t batch_end = HWY_MIN(full, batch + kBatchElements);
    for (size_t at = batch; at < batch_end; at += kGroupElements) {
      const size_t packed = key_planes::packed_bytes(at);
      FarBits far_bits;
      for (size_t begin = 0; begin < kRowElements; begin += kLanes) {
        Plane column[kGroupRows];
        unpack_column(in.codes + packed + begin, column);
        far_bits.add(column, begin);
        for (size_t row = 0; row < kGroupRows; ++row) {
          hn::Store(hn::Add(column[row], first), d, keys + row * kRowElements + begin);
        }
        if constexpr (kHasHigh) {
          unpack_column(in.high + packed + begin, column);
          for (size_t row = 0; row < kGroupRows; ++row) {
            hn::Store(column[row], d, high + row * kRowElements + begin);
          }
        }
      }
      // From front to end: memory that is not cached takes whole lines faster.
      for (size_t i = 0; i < kGroupElements; i += kLanes) {
        store_joined<kForm>(hn::Load(d, keys + i), hn::LoadU(d, in.middle + at + i),
                            high + (kHasHigh ? i : 0), in.low + (at + i) * (kWidth - 2),
                            to + (at + i) * kWidth);
      }
      places_end = far_bits.write_places(at - batch, places_end);
    }
    if (places_end - places > left.end - left.next) return false;
    for (const uint16_t* place = places; place != places_end; ++place) {
      uint8_t* const element = to + (batch + *place) * kWidth;
      key_planes::Split parts = key_planes::split(kForm, key_planes::load_top(kForm, element));
      parts.key = *left.next++;
      good &= key_planes::is_far(kForm, parts.key, base);
      key_planes::store_top(kForm, key_planes::join(kForm, parts), element);
    }
  }
  if (full < n) good &= key_planes::join_group(kForm, planes, full, n, n, base, &left, to);
  return good && left.next == left.end;
}
