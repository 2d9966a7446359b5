// Whole arrays as planes: what is noise in a weight (sign and mantissa) verbatim, its key (the
// exponent) in three bits where it is one of seven neighbours. docs/format.md, "exponents", has the
// bytes; here are their sizes and the code for single elements and for groups that are not full.
// What is constexpr nvcc compiles for a GPU, too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace deltawire {

// Which bits of an element are its key.
enum class KeyForm : uint8_t {
  k8of16 = 0,  // sign, 8 bits of key, 7 of mantissa
  k5of16 = 1,  // sign, 5, 10
  k8of32 = 2,  // sign, 8, 23
};
inline constexpr size_t kKeyForms = 3;

// Keys from `base` to `base + kNearKeys - 1` have a code each; the code kFarKey says that the key
// stands elsewhere, in a byte of its own.
inline constexpr uint8_t kNearKeys = 7;
inline constexpr uint8_t kFarKey = 7;

// Codes are packed in groups of eight rows. A row is 64 codes; in the last group of an array it is
// an eighth of what is left, rounded up.
inline constexpr size_t kRowElements = 64;
inline constexpr size_t kGroupRows = 8;
inline constexpr size_t kGroupElements = kGroupRows * kRowElements;

namespace key_planes {

constexpr size_t width(KeyForm form) { return form == KeyForm::k8of32 ? 4 : 2; }
constexpr uint8_t max_key(KeyForm form) { return form == KeyForm::k5of16 ? 31 : 255; }
constexpr uint8_t max_base(KeyForm form) { return uint8_t(max_key(form) - (kNearKeys - 1)); }

constexpr size_t columns(size_t elements) {
  return elements >= kGroupElements ? kRowElements : (elements + kGroupRows - 1) / kGroupRows;
}
// Three bits for each of n elements.
constexpr size_t packed_bytes(size_t n) {
  return n / kGroupElements * 3 * kRowElements + 3 * columns(n % kGroupElements);
}
constexpr size_t bytes(KeyForm form, size_t n) {
  return n * (width(form) - 1) + (form == KeyForm::k5of16 ? 2 : 1) * packed_bytes(n);
}

// Where the planes of n elements are.
template <class Byte>
struct Planes {
  Byte* low;     // the bytes of each element below its top two: none, or two
  Byte* middle;  // a byte of each
  Byte* high;    // k5of16: three bits of each
  Byte* codes;   // three bits of each

  constexpr Planes(KeyForm form, size_t n, Byte* at)
      : low(at),
        middle(low + n * (width(form) - 2)),
        high(middle + n),
        codes(high + (form == KeyForm::k5of16 ? packed_bytes(n) : 0)) {}
};

struct Split {
  uint8_t key, middle, high;
};

// Of the top 16 bits of an element.
constexpr Split split(KeyForm form, uint16_t top) {
  if (form == KeyForm::k5of16) {
    return {uint8_t(top >> 10 & 31), uint8_t(top), uint8_t((top >> 13 & 4) | (top >> 8 & 3))};
  }
  return {uint8_t(top >> 7), uint8_t((top >> 8 & 0x80) | (top & 0x7f)), 0};
}
constexpr uint16_t join(KeyForm form, Split parts) {
  if (form == KeyForm::k5of16) {
    return uint16_t((parts.high & 4) << 13 | parts.key << 10 | (parts.high & 3) << 8 |
                    parts.middle);
  }
  return uint16_t((parts.middle & 0x80) << 8 | parts.key << 7 | (parts.middle & 0x7f));
}

inline uint16_t load_top(KeyForm form, const uint8_t* element) {
  uint16_t top;
  std::memcpy(&top, element + width(form) - 2, sizeof top);
  return top;
}
inline void store_top(KeyForm form, uint16_t top, uint8_t* element) {
  std::memcpy(element + width(form) - 2, &top, sizeof top);
}

constexpr uint8_t code_of(uint8_t key, uint8_t base) {
  const uint8_t distance = uint8_t(key - base);
  return distance < kNearKeys ? distance : kFarKey;
}

// A key that has a code, or that no element can have, may not stand among the far ones.
constexpr bool is_far(KeyForm form, uint8_t key, uint8_t base) {
  return key <= max_key(form) && code_of(key, base) == kFarKey;
}

// ---- the seven keys of a block of n elements: as many of some of its rows as can be

// Rows that are looked at: all of a small block, else spread over it.
inline constexpr size_t kSampleRows = 16;
constexpr size_t num_samples(size_t n) {
  const size_t rows = (n + kRowElements - 1) / kRowElements;
  return rows < kSampleRows ? rows : kSampleRows;
}
// Where row i of them begins.
constexpr size_t sample_begin(size_t n, size_t i) {
  return (n + kRowElements - 1) / kRowElements * i / num_samples(n) * kRowElements;
}
// The base with the greatest score is taken: of those with as many near keys the least.
constexpr uint32_t base_score(uint32_t near, uint8_t base) { return near << 8 | (255U - base); }
constexpr uint8_t base_of_score(uint32_t score) { return uint8_t(255U - (score & 255U)); }

// ---- groups

// Eight rows: group g of n elements. Element i of it is in row i / columns, column i % columns.
struct RowGroup {
  uint32_t begin, count, columns;
};
constexpr RowGroup group_of(uint32_t n, uint32_t g) {
  const uint32_t begin = g * uint32_t(kGroupElements);
  const uint32_t left = n - begin;
  return {begin, left < kGroupElements ? left : uint32_t(kGroupElements), uint32_t(columns(left))};
}

// Column i of a group: the codes of its eight rows in three bytes.
constexpr void pack_column(const uint8_t* c, uint8_t* out, size_t columns) {
  out[0] = uint8_t(c[0] | c[1] << 3 | c[6] << 6);
  out[columns] = uint8_t(c[2] | c[3] << 3 | c[7] << 6);
  out[2 * columns] = uint8_t(c[4] | c[5] << 3 | (c[6] & 4) << 4 | (c[7] & 4) << 5);
}
constexpr void unpack_column(const uint8_t* in, size_t columns, uint8_t* c) {
  const uint8_t x = in[0], y = in[columns], z = in[2 * columns];
  c[0] = x & 7, c[1] = x >> 3 & 7;
  c[2] = y & 7, c[3] = y >> 3 & 7;
  c[4] = z & 7, c[5] = z >> 3 & 7;
  c[6] = uint8_t(x >> 6 | (z >> 4 & 4));
  c[7] = uint8_t(y >> 6 | (z >> 5 & 4));
}

// n <= kGroupElements values of three bits.
inline void pack_group(const uint8_t* values, size_t n, uint8_t* out) {
  const size_t width = columns(n);
  for (size_t i = 0; i < width; ++i) {
    uint8_t column[kGroupRows] = {};
    for (size_t row = 0; row < kGroupRows && row * width + i < n; ++row) {
      column[row] = values[row * width + i];
    }
    pack_column(column, out + i, width);
  }
}
// False when a place behind the last value is not zero.
inline bool unpack_group(const uint8_t* in, size_t n, uint8_t* values) {
  const size_t width = columns(n);
  uint8_t behind = 0;
  for (size_t i = 0; i < width; ++i) {
    uint8_t column[kGroupRows];
    unpack_column(in + i, width, column);
    for (size_t row = 0; row < kGroupRows; ++row) {
      if (row * width + i < n) {
        values[row * width + i] = column[row];
      } else {
        behind |= column[row];
      }
    }
  }
  return behind == 0;
}

// Elements `begin` to `end` of an array of n: at most a group, which begins at `begin`.
inline size_t split_group(KeyForm form, const uint8_t* data, size_t begin, size_t end, size_t n,
                          uint8_t base, uint8_t* planes, uint8_t* far) {
  const Planes<uint8_t> out(form, n, planes);
  const size_t low = width(form) - 2, packed = packed_bytes(begin);
  uint8_t high[kGroupElements], codes[kGroupElements];
  size_t num_far = 0;
  for (size_t i = begin; i < end; ++i) {
    const uint8_t* element = data + i * width(form);
    if (low != 0) std::memcpy(out.low + i * low, element, low);
    const Split parts = split(form, load_top(form, element));
    out.middle[i] = parts.middle;
    high[i - begin] = parts.high;
    codes[i - begin] = code_of(parts.key, base);
    if (codes[i - begin] == kFarKey) far[num_far++] = parts.key;
  }
  if (form == KeyForm::k5of16) pack_group(high, end - begin, out.high + packed);
  pack_group(codes, end - begin, out.codes + packed);
  return num_far;
}

// The far keys that are left, while an array is joined.
struct FarKeys {
  const uint8_t* next;
  const uint8_t* end;
};

inline bool join_group(KeyForm form, const uint8_t* planes, size_t begin, size_t end, size_t n,
                       uint8_t base, FarKeys* far, uint8_t* data) {
  const Planes<const uint8_t> in(form, n, planes);
  const size_t low = width(form) - 2, packed = packed_bytes(begin);
  uint8_t high[kGroupElements] = {}, codes[kGroupElements];
  bool good = unpack_group(in.codes + packed, end - begin, codes);
  if (form == KeyForm::k5of16) good &= unpack_group(in.high + packed, end - begin, high);
  for (size_t i = begin; i < end; ++i) {
    uint8_t* element = data + i * width(form);
    if (low != 0) std::memcpy(element, in.low + i * low, low);
    uint8_t key = uint8_t(base + codes[i - begin]);
    if (codes[i - begin] == kFarKey) {
      if (far->next == far->end) return false;
      key = *far->next++;
      good &= is_far(form, key, base);
    }
    store_top(form, join(form, {key, in.middle[i], high[i - begin]}), element);
  }
  return good;
}

}  // namespace key_planes
}  // namespace deltawire
