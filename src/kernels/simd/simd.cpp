// The Highway targets. This file is compiled once per instruction set: foreach_target.h includes it
// again and again with another HWY_TARGET. What differs between sets is in strip_*-inl.h.
#include "kernels/targets.h"

#include <array>
#include <cstring>

#include "kernels/sum_segments.h"

#define HWY_WANT_AVX3_DL
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/simd/simd.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#ifndef DELTAWIRE_SIMD_ONCE
#define DELTAWIRE_SIMD_ONCE
namespace deltawire {

// kSelectInByte[b][n]: index of set bit number n of the byte b.
struct SelectTable {
  uint8_t rows[256][8] = {};
  constexpr SelectTable() {
    for (int b = 0; b < 256; ++b) {
      for (int i = 0, n = 0; i < 8; ++i) {
        if ((b >> i & 1) != 0) rows[b][n++] = uint8_t(i);
      }
    }
  }
  constexpr const uint8_t* operator[](size_t b) const { return rows[b]; }
};
[[maybe_unused]] inline constexpr SelectTable kSelectInByte;

template <class Number>
constexpr std::array<uint8_t, 64> byte_table(Number number) {
  std::array<uint8_t, 64> table{};
  for (size_t i = 0; i < 64; ++i) table[i] = uint8_t(number(i));
  return table;
}
using ByteTable = std::array<uint8_t, 64>;
alignas(64)
    [[maybe_unused]] inline constexpr ByteTable kCountUp = byte_table([](size_t i) { return i; });
// "Turned": the last of each eight bytes comes first.
alignas(64) [[maybe_unused]] inline constexpr ByteTable kTurned = byte_table([](size_t i) {
  return i ^ 7;
});
alignas(64) [[maybe_unused]] inline constexpr ByteTable kEvenTurned = byte_table([](size_t i) {
  return 2 * (i ^ 7);
});
alignas(64) [[maybe_unused]] inline constexpr ByteTable kEveryEighth = byte_table([](size_t i) {
  return i % 8 * 8 + i / 8;
});

}  // namespace deltawire
#endif

#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL || \
    HWY_TARGET == HWY_NEON

HWY_BEFORE_NAMESPACE();
namespace deltawire {
namespace HWY_NAMESPACE {

// Keys of a strip of elements that have no special code: plain loops that compilers vectorise.
template <class T>
inline void extract_keys(const T* p, const ClassSplit& split, uint8_t* out) {
  for (size_t i = 0; i < kStripElements; ++i) {
    T element;
    std::memcpy(&element, p + i, sizeof element);  // p need not be aligned
    out[i] = uint8_t(element >> split.key_shift) & split.key_mask;
  }
}

#if HWY_TARGET == HWY_NEON
#include "kernels/simd/strip_neon-inl.h"
#include "kernels/simd/sum_neon-inl.h"
#else
#include "kernels/simd/diff_x86-inl.h"
#include "kernels/simd/strip_x86-inl.h"
#include "kernels/simd/sum-inl.h"
#endif

// The machine's own prefetchers stop at page borders; this reaches over them.
constexpr ptrdiff_t kPrefetchBytes = 2048;

template <class T>
inline void prefetch_strip(const T* p, ptrdiff_t ahead = kPrefetchBytes) {
  for (size_t at = 0; at < kStripElements * sizeof(T); at += 64) {
    __builtin_prefetch(reinterpret_cast<const char*>(p) + ahead + at);
  }
}

// The last strip of an array, copied where reading past the end does no harm.
template <class T>
struct TailStrip {
  alignas(64) T elements[kStripElements] = {};
  TailStrip(const T* p, size_t n) { std::memcpy(elements, p, n * sizeof(T)); }
};

#if HWY_TARGET == HWY_AVX3_DL
// Compressing the numbers 0 ... 63 by the mask gives the positions, 32 at a time, without a branch
// that depends on how many there are.
inline uint16_t* write_positions(uint64_t differs, size_t base, uint16_t* out) {
  const uint32_t count = uint32_t(_mm_popcnt_u64(differs));
  const __m512i offset = _mm512_set1_epi16(int16_t(base));
  const __m512i bits = _mm512_maskz_compress_epi8(differs, load512(&kCountUp));
  _mm512_storeu_si512(out,
                      _mm512_add_epi16(_mm512_cvtepu8_epi16(_mm512_castsi512_si256(bits)), offset));
  if (HWY_UNLIKELY(count > 32)) {
    const __m256i more = _mm512_extracti64x4_epi64(bits, 1);
    _mm512_storeu_si512(out + 32, _mm512_add_epi16(_mm512_cvtepu8_epi16(more), offset));
  }
  return out + count;
}
#else
// Up to four changes are written without a branch: most strips have fewer, and a mispredicted
// branch costs more than the writes.
inline uint16_t* write_positions(uint64_t differs, size_t base, uint16_t* out) {
  const uint32_t count = uint32_t(__builtin_popcountll(differs));
  // In one word: compilers would gather them in a vector, which takes longer.
  uint64_t left = differs, four = 0;
  for (int i = 0; i < 4; ++i) {
    four |= uint64_t(__builtin_ctzll(left | uint64_t{1} << 63)) << (16 * i);
    left &= left - 1;
  }
  four += uint64_t(base) * 0x0001000100010001ULL;
  std::memcpy(out, &four, sizeof four);
  if (HWY_UNLIKELY(count > 4)) {
    for (uint32_t i = 4; i < count; ++i, left &= left - 1) {
      out[i] = uint16_t(base + uint32_t(__builtin_ctzll(left)));
    }
  }
  return out + count;
}
#endif

#include "kernels/simd/key_planes-inl.h"

#include "kernels/simd/fp8-inl.h"

constexpr uint64_t low_bits(size_t n) { return n >= 64 ? ~uint64_t{0} : (uint64_t{1} << n) - 1; }

template <class T>
size_t diff(const void* a, const void* b, size_t n, uint16_t* positions) noexcept {
  const T *p = static_cast<const T*>(a), *q = static_cast<const T*>(b);
  uint16_t* out = positions;
  size_t at = 0;
  for (; at + kStripElements <= n; at += kStripElements) {
    prefetch_strip(p + at);
    prefetch_strip(q + at);
    out = write_positions(diff_strip(p + at, q + at), at, out);
  }
  if (at < n) {
    const TailStrip<T> x(p + at, n - at), y(q + at, n - at);
    out = write_positions(diff_strip(x.elements, y.elements), at, out);
  }
  return size_t(out - positions);
}

template <class T>
size_t diff_mask(const void* a, const void* b, size_t n, uint64_t* masks) noexcept {
  const T *p = static_cast<const T*>(a), *q = static_cast<const T*>(b);
  size_t at = 0, count = 0;
  for (; at + kStripElements <= n; at += kStripElements) {
    prefetch_strip(p + at);
    prefetch_strip(q + at);
    masks[at / kStripElements] = diff_strip(p + at, q + at);
    count += size_t(__builtin_popcountll(masks[at / kStripElements]));
  }
  if (at < n) {
    const TailStrip<T> x(p + at, n - at), y(q + at, n - at);
    masks[at / kStripElements] = diff_strip(x.elements, y.elements);
    count += size_t(__builtin_popcountll(masks[at / kStripElements]));
  }
  return count;
}

#include "kernels/simd/segment-inl.h"

// Positions are known long before they are reached: memory is told in time. Lines go to the
// second-level cache: from there 3 M changes of 512 MB take 21 ms, from the first 25, without 29
// (Neoverse-V1, one core).
template <class T>
void exchange(void* dst, const uint32_t* positions, void* values, size_t count) noexcept {
  constexpr size_t kAhead = 32;
  uint8_t* const bytes = static_cast<uint8_t*>(dst);
  uint8_t* value = static_cast<uint8_t*>(values);
  const auto swap_one = [&](size_t i) {
    uint8_t* const at = bytes + positions[i] * sizeof(T);
    T next, old;
    std::memcpy(&next, value, sizeof next);
    std::memcpy(&old, at, sizeof old);
    std::memcpy(at, &next, sizeof next);
    std::memcpy(value, &old, sizeof old);
    value += sizeof(T);
  };
  size_t i = 0;
  for (; i + kAhead < count; ++i) {
    __builtin_prefetch(bytes + positions[i + kAhead] * sizeof(T), 1, 2);
    swap_one(i);
  }
  for (; i < count; ++i) swap_one(i);
}

void sum(const uint8_t* data, size_t num_words, uint64_t position, uint64_t* sums) noexcept {
  sum128::for_segments(data, num_words, position, sums, sum_whole, sum_part);
}

const Kernels* table(const Kernels& scalar, std::string_view name) {
  static Kernels kTable = scalar;  // equal, gather and scatter are as fast as they can be
  kTable.name = name;
#define DW_SET_WIDTHS(f)     \
  kTable.f[0] = f<uint8_t>;  \
  kTable.f[1] = f<uint16_t>; \
  kTable.f[2] = f<uint32_t>; \
  kTable.f[3] = f<uint64_t>;
  DW_SET_WIDTHS(diff)
  DW_SET_WIDTHS(diff_mask)
  DW_SET_WIDTHS(index)
  DW_SET_WIDTHS(index_diff)
  DW_SET_WIDTHS(exchange)
#undef DW_SET_WIDTHS
  kTable.counts_before = counts_before;
  kTable.rank = rank;
  kTable.locate = locate;
  kTable.sum = sum;
#define DW_SET_FORMS(f)                                   \
  kTable.f[size_t(KeyForm::k8of16)] = f<KeyForm::k8of16>; \
  kTable.f[size_t(KeyForm::k5of16)] = f<KeyForm::k5of16>; \
  kTable.f[size_t(KeyForm::k8of32)] = f<KeyForm::k8of32>;
  DW_SET_FORMS(count_far)
  DW_SET_FORMS(split_keys)
  DW_SET_FORMS(join_keys)
#undef DW_SET_FORMS
  kTable.largest[0] = largest<uint16_t>;
  kTable.largest[1] = largest<uint32_t>;
  kTable.to_e4m3[size_t(WideFloat::kBf16)] = to_e4m3<WideFloat::kBf16>;
  kTable.to_e4m3[size_t(WideFloat::kF32)] = to_e4m3<WideFloat::kF32>;
  kTable.to_e4m3[size_t(WideFloat::kF32AsBf16)] = to_e4m3<WideFloat::kF32AsBf16>;
  return &kTable;
}

}  // namespace HWY_NAMESPACE
}  // namespace deltawire
HWY_AFTER_NAMESPACE();

#endif

#if HWY_ONCE

namespace deltawire {
namespace {

struct SimdTargets {
  std::array<const Kernels*, 4> list{};
  size_t count = 0;

  SimdTargets() {
    [[maybe_unused]] const int64_t supported = hwy::SupportedTargets();
    [[maybe_unused]] const Kernels& scalar = scalar_kernels();
#if HWY_TARGETS & HWY_AVX3_DL
    if ((supported & HWY_AVX3_DL) != 0 && __builtin_cpu_supports("gfni") != 0)
      list[count++] = N_AVX3_DL::table(scalar, "avx512-vbmi2");
#endif
#if HWY_TARGETS & HWY_AVX3
    if (supported & HWY_AVX3) list[count++] = N_AVX3::table(scalar, "avx512");
#endif
#if HWY_TARGETS & HWY_AVX2
    if (supported & HWY_AVX2) list[count++] = N_AVX2::table(scalar, "avx2");
#endif
#if HWY_TARGETS & HWY_NEON
    if (supported & HWY_NEON) list[count++] = N_NEON::table(scalar, "neon");
#endif
  }
};

}  // namespace

std::span<const Kernels* const> simd_kernels() noexcept {
  static const SimdTargets kTargets;
  return {kTargets.list.data(), kTargets.count};
}

}  // namespace deltawire
#endif
