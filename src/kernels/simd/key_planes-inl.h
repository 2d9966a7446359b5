// Keys and what is left of elements, 64 to a row and eight rows at a time: codes of the same column
// of all rows are packed by shifts alone. Included once per target by simd.cpp, inside
// HWY_NAMESPACE.

namespace hn = hwy::HWY_NAMESPACE;
using PlaneTag = hn::CappedTag<uint8_t, kRowElements>;
using Plane = hn::Vec<PlaneTag>;

// The top two bytes of a vector of elements; those below, if there are any, go to `low_plane`.
template <KeyForm kForm>
inline void load_tops(const uint8_t* from, [[maybe_unused]] uint8_t* low_plane, Plane& low,
                      Plane& high) {
  const PlaneTag d;
  if constexpr (kForm == KeyForm::k8of32) {
    Plane first, second;
    hn::LoadInterleaved4(d, from, first, second, low, high);
    if (low_plane != nullptr) hn::StoreInterleaved2(first, second, d, low_plane);
  } else {
    hn::LoadInterleaved2(d, from, low, high);
  }
}

template <KeyForm kForm>
inline Plane keys_of(Plane low, Plane high) {
  const PlaneTag d;
  if constexpr (kForm == KeyForm::k5of16) {
    return hn::And(hn::ShiftRight<2>(high), hn::Set(d, 31));
  } else {
    return hn::Or(hn::Add(high, high), hn::ShiftRight<7>(low));
  }
}

inline Plane bits_of(uint8_t mask, Plane ones, Plane zeros) {
  const Plane m = hn::Set(PlaneTag(), mask);
  return hn::Or(hn::And(m, ones), hn::AndNot(m, zeros));
}

// Bit i: code i of the row is that of a far key.
inline uint64_t far_bits(const uint8_t* row) {
#if HWY_TARGET == HWY_NEON
  const uint8x16_t far = vdupq_n_u8(kFarKey);
  return as_word(to_bits(vceqq_u8(vld1q_u8(row), far), vceqq_u8(vld1q_u8(row + 16), far),
                         vceqq_u8(vld1q_u8(row + 32), far), vceqq_u8(vld1q_u8(row + 48), far)));
#else
  const PlaneTag d;
  uint64_t bits = 0;
  for (size_t i = 0; i < kRowElements; i += hn::Lanes(d)) {
    const auto far = hn::Eq(hn::LoadU(d, row + i), hn::Set(d, kFarKey));
    hn::StoreMaskBits(d, far, reinterpret_cast<uint8_t*>(&bits) + i / 8);
  }
  return bits;
#endif
}

// Where the far keys of a group are.
struct FarPlaces {
  uint16_t places[kGroupElements + kRowElements];  // vector stores may run over
  size_t count;

  explicit FarPlaces(const uint8_t* codes) {
    uint16_t* end = places;
    for (size_t row = 0; row < kGroupRows; ++row) {
      end = write_positions(far_bits(codes + row * kRowElements), row * kRowElements, end);
    }
    count = size_t(end - places);
  }
};

inline Plane pair(Plane a, Plane b) { return hn::Or(a, hn::ShiftLeft<3>(b)); }

inline void pack_columns(const uint8_t* values, uint8_t* out) {
  const PlaneTag d;
  Plane c[kGroupRows];
  for (size_t row = 0; row < kGroupRows; ++row) c[row] = hn::LoadU(d, values + row * kRowElements);
  const Plane four = hn::Set(d, 4);
  hn::StoreU(hn::Or(pair(c[0], c[1]), hn::ShiftLeft<6>(c[6])), d, out);
  hn::StoreU(hn::Or(pair(c[2], c[3]), hn::ShiftLeft<6>(c[7])), d, out + kRowElements);
  const Plane tops =
      hn::Or(hn::ShiftLeft<4>(hn::And(c[6], four)), hn::ShiftLeft<5>(hn::And(c[7], four)));
  hn::StoreU(hn::Or(pair(c[4], c[5]), tops), d, out + 2 * kRowElements);
}

inline void unpack_columns(const uint8_t* in, uint8_t* values) {
  const PlaneTag d;
  Plane c[kGroupRows];
  const Plane four = hn::Set(d, 4), seven = hn::Set(d, 7);
  const Plane x = hn::LoadU(d, in), y = hn::LoadU(d, in + kRowElements),
              z = hn::LoadU(d, in + 2 * kRowElements);
  c[0] = hn::And(x, seven), c[1] = hn::And(hn::ShiftRight<3>(x), seven);
  c[2] = hn::And(y, seven), c[3] = hn::And(hn::ShiftRight<3>(y), seven);
  c[4] = hn::And(z, seven), c[5] = hn::And(hn::ShiftRight<3>(z), seven);
  c[6] = hn::Or(hn::ShiftRight<6>(x), hn::And(hn::ShiftRight<4>(z), four));
  c[7] = hn::Or(hn::ShiftRight<6>(y), hn::And(hn::ShiftRight<5>(z), four));
  for (size_t row = 0; row < kGroupRows; ++row) hn::StoreU(c[row], d, values + row * kRowElements);
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
      Plane low, high;
      load_tops<kForm>(from + at * kWidth, nullptr, low, high);
      const Plane distance = hn::Sub(keys_of<kForm>(low, high), first);
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
  alignas(64) uint8_t codes[kGroupElements], high[kHasHigh ? kGroupElements : 1];
  size_t num_far = 0, at = 0;
  for (; at + kGroupElements <= n; at += kGroupElements) {
    for (size_t i = 0; i < kGroupElements; i += kLanes) {
      Plane low, top;
      load_tops<kForm>(from + (at + i) * kWidth, out.low + (at + i) * (kWidth - 2), low, top);
      if constexpr (kHasHigh) {
        hn::StoreU(low, d, out.middle + at + i);
        hn::Store(
            hn::Or(hn::And(hn::ShiftRight<5>(top), hn::Set(d, 4)), hn::And(top, hn::Set(d, 3))), d,
            high + i);
      } else {
        hn::StoreU(bits_of(0x80, top, low), d, out.middle + at + i);
      }
      hn::Store(hn::Min(hn::Sub(keys_of<kForm>(low, top), first), far_key), d, codes + i);
    }
    const size_t packed = key_planes::packed_bytes(at);
    for (size_t column = 0; column < kRowElements; column += kLanes) {
      pack_columns(codes + column, out.codes + packed + column);
      if constexpr (kHasHigh) pack_columns(high + column, out.high + packed + column);
    }
    const FarPlaces places(codes);
    for (size_t i = 0; i < places.count; ++i) {
      const uint8_t* const element = from + (at + places.places[i]) * kWidth;
      far[num_far++] = key_planes::split(kForm, key_planes::load_top(kForm, element)).key;
    }
  }
  if (at < n)
    num_far += key_planes::split_group(kForm, from, at, n, n, base, planes, far + num_far);
  return num_far;
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
  alignas(64) uint8_t codes[kGroupElements], high[kHasHigh ? kGroupElements : 1];
  key_planes::FarKeys left{far, far + num_far};
  bool good = true;
  size_t at = 0;
  for (; at + kGroupElements <= n; at += kGroupElements) {
    const size_t packed = key_planes::packed_bytes(at);
    for (size_t column = 0; column < kRowElements; column += kLanes) {
      unpack_columns(in.codes + packed + column, codes + column);
      if constexpr (kHasHigh) unpack_columns(in.high + packed + column, high + column);
    }
    for (size_t i = 0; i < kGroupElements; i += kLanes) {
      const Plane keys = hn::Add(hn::Load(d, codes + i), first);
      const Plane middle = hn::LoadU(d, in.middle + at + i);
      uint8_t* const elements = to + (at + i) * kWidth;
      if constexpr (kHasHigh) {
        const Plane three = hn::Load(d, high + i);
        const Plane top = hn::Or(hn::ShiftLeft<5>(hn::And(three, hn::Set(d, 4))),
                                 hn::Or(hn::ShiftLeft<2>(keys), hn::And(three, hn::Set(d, 3))));
        hn::StoreInterleaved2(middle, top, d, elements);
      } else {
        const Plane low = bits_of(0x7f, middle, hn::ShiftLeft<7>(keys));
        const Plane top = bits_of(0x80, middle, hn::ShiftRight<1>(keys));
        if constexpr (kForm == KeyForm::k8of32) {
          Plane a, b;
          hn::LoadInterleaved2(d, in.low + (at + i) * 2, a, b);
          hn::StoreInterleaved4(a, b, low, top, d, elements);
        } else {
          hn::StoreInterleaved2(low, top, d, elements);
        }
      }
    }
    const FarPlaces places(codes);
    if (places.count > size_t(left.end - left.next)) return false;
    for (size_t i = 0; i < places.count; ++i) {
      const size_t place = places.places[i];
      const uint8_t key = *left.next++;
      good &= key_planes::is_far(kForm, key, base);
      const key_planes::Split parts{key, in.middle[at + place],
                                    kHasHigh ? high[place] : uint8_t{0}};
      key_planes::store_top(kForm, key_planes::join(kForm, parts), to + (at + place) * kWidth);
    }
  }
  if (at < n) good &= key_planes::join_group(kForm, planes, at, n, n, base, &left, to);
  return good && left.next == left.end;
}
