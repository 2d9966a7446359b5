// BF16 and F32 to E4M3 with any vectors. Included once per target by simd.cpp, inside
// HWY_NAMESPACE. Sizes are compared as integers: NaN is the largest, and no order of lanes matters.

using Floats = hn::ScalableTag<float>;
using Bits32 = hn::ScalableTag<uint32_t>;
using HalfBits16 = hn::Rebind<uint16_t, Bits32>;
using Signed32 = hn::ScalableTag<int32_t>;

template <class T>
uint32_t largest(const void* data, size_t n) noexcept {
  const hn::ScalableTag<T> tag;
  constexpr T kSize = T(~T{0}) >> 1;
  constexpr size_t kStep = hn::MaxLanes(tag);
  const T* const p = static_cast<const T*>(data);
  const auto size = hn::Set(tag, kSize);
  auto a = hn::Zero(tag), b = a;
  size_t i = 0;
  for (; i + 2 * kStep <= n; i += 2 * kStep) {
    a = hn::Max(a, hn::And(size, hn::LoadU(tag, p + i)));
    b = hn::Max(b, hn::And(size, hn::LoadU(tag, p + i + kStep)));
  }
  HWY_ALIGN T lanes[kStep];
  hn::Store(hn::Max(a, b), tag, lanes);
  uint32_t found = 0;
  for (const T lane : lanes) found = lane > found ? lane : found;
  for (; i < n; ++i) {
    T bits;
    std::memcpy(&bits, p + i, sizeof bits);
    const uint32_t own = bits & kSize;
    if (own > found) found = own;
  }
  return found;
}

// The bits of F32.
template <WideFloat kFrom>
inline hn::Vec<Bits32> load_wide(const void* data, size_t i) {
  if constexpr (kFrom == WideFloat::kBf16) {
    const auto narrow = hn::LoadU(HalfBits16(), static_cast<const uint16_t*>(data) + i);
    return hn::ShiftLeft<16>(hn::PromoteTo(Bits32(), narrow));
  } else {
    const auto wide = hn::LoadU(Bits32(), static_cast<const uint32_t*>(data) + i);
    if constexpr (kFrom == WideFloat::kF32) return wide;
    const auto odd = hn::And(hn::ShiftRight<16>(wide), hn::Set(Bits32(), 1));
    const auto rounded = hn::Add(hn::Add(wide, hn::Set(Bits32(), 0x7fff)), odd);
    return hn::And(rounded, hn::Set(Bits32(), 0xffff0000));
  }
}

inline hn::Vec<Signed32> to_e4m3_lanes(hn::Vec<Bits32> wide, hn::Vec<Floats> inverse) {
  const Floats floats;
  const Bits32 tag;
  const auto product = hn::BitCast(tag, hn::Mul(hn::BitCast(floats, wide), inverse));
  const auto sign = hn::And(hn::ShiftRight<24>(product), hn::Set(tag, 0x80));
  const auto size =
      hn::Min(hn::And(product, hn::Set(tag, 0x7fffffff)), hn::Set(tag, fp8::kLargestBits));
  const auto odd = hn::And(hn::ShiftRight<20>(size), hn::Set(tag, 1));
  const auto rounded = hn::ShiftRight<20>(hn::Add(hn::Add(size, hn::Set(tag, 0x7ffff)), odd));
  const auto normal = hn::Sub(rounded, hn::Set(tag, 120U << 3));
  const auto unit = hn::Set(floats, 16384.0F);
  const auto denormal =
      hn::Sub(hn::BitCast(tag, hn::Add(hn::BitCast(floats, size), unit)), hn::BitCast(tag, unit));
  const auto is_normal = hn::Gt(hn::BitCast(Signed32(), size),
                                hn::Set(Signed32(), int32_t(fp8::kLeastNormalBits - 1)));
  const auto code =
      hn::IfThenElse(is_normal, hn::BitCast(Signed32(), normal), hn::BitCast(Signed32(), denormal));
  return hn::Or(hn::BitCast(Signed32(), sign), code);
}

template <WideFloat kFrom>
void to_e4m3(const void* data, size_t n, float inverse, uint8_t* out) noexcept {
  constexpr size_t kStep = hn::MaxLanes(Floats());
  const hn::Rebind<uint8_t, Floats> bytes;
  const auto factor = hn::Set(Floats(), inverse);
  size_t i = 0;
  for (; i + kStep <= n; i += kStep) {
    const auto codes = to_e4m3_lanes(load_wide<kFrom>(data, i), factor);
    hn::StoreU(hn::DemoteTo(bytes, codes), bytes, out + i);
  }
  for (; i < n; ++i) out[i] = fp8::e4m3_of(fp8::load<kFrom>(data, i) * inverse);
}
