// The reference: the shortest code that says what each kernel means. Every other target must match
// it.
#include "kernels/targets.h"

#include <algorithm>
#include <cstring>

#include "kernels/sum_segments.h"

namespace deltawire {
namespace {

template <class T>
T load(const void* p, size_t i) noexcept {
  T value;
  std::memcpy(&value, static_cast<const uint8_t*>(p) + i * sizeof(T), sizeof value);
  return value;
}

template <class T>
size_t diff(const void* a, const void* b, size_t n, uint16_t* positions) noexcept {
  size_t count = 0;
  for (size_t i = 0; i < n; ++i) {
    positions[count] = uint16_t(i);
    count += load<T>(a, i) != load<T>(b, i);
  }
  return count;
}

template <class T>
size_t diff_mask(const void* a, const void* b, size_t n, uint64_t* masks) noexcept {
  size_t count = 0;
  for (size_t i = 0; i < n; ++i) {
    if (i % 64 == 0) masks[i / 64] = 0;
    const bool differs = load<T>(a, i) != load<T>(b, i);
    masks[i / 64] |= uint64_t{differs} << (i % 64);
    count += differs;
  }
  return count;
}

bool equal(const void* a, const void* b, size_t num_bytes) noexcept {
  return num_bytes == 0 || std::memcmp(a, b, num_bytes) == 0;
}

template <class T>
void gather(const void* src, const uint32_t* positions, size_t count, void* values) noexcept {
  for (size_t i = 0; i < count; ++i) {
    std::memcpy(static_cast<uint8_t*>(values) + i * sizeof(T),
                static_cast<const uint8_t*>(src) + positions[i] * sizeof(T), sizeof(T));
  }
}

template <class T>
void scatter(void* dst, const uint32_t* positions, const void* values, size_t count) noexcept {
  constexpr size_t kAhead = 32;  // what was scanned long ago is no longer in cache
  for (size_t i = 0; i < count; ++i) {
    if (i + kAhead < count) {
      __builtin_prefetch(static_cast<uint8_t*>(dst) + positions[i + kAhead] * sizeof(T), 1);
    }
    std::memcpy(static_cast<uint8_t*>(dst) + positions[i] * sizeof(T),
                static_cast<const uint8_t*>(values) + i * sizeof(T), sizeof(T));
  }
}

template <class T>
void exchange(void* dst, const uint32_t* positions, void* values, size_t count) noexcept {
  for (size_t i = 0; i < count; ++i) {
    uint8_t* const at = static_cast<uint8_t*>(dst) + positions[i] * sizeof(T);
    uint8_t* const value = static_cast<uint8_t*>(values) + i * sizeof(T);
    std::swap_ranges(at, at + sizeof(T), value);
  }
}

// The scratch holds the class of every element, kNoClass past the end of a row.
constexpr uint8_t kNoClass = 255;

// Strips of a shape from number `first` on; those past the last one are empty.
template <class T>
void index_strips(ScanRows data, ScanShape shape, const ClassSplit& split, size_t first, size_t end,
                  SegmentIndex* out) noexcept {
  std::memset(out->total, 0, sizeof out->total);
  for (size_t strip = 0; strip < kSegmentStrips; ++strip) {
    for (size_t c = 0; c < kMaxClasses; ++c) out->before[c][strip] = out->total[c];
    if (first + strip >= end) continue;
    const ScanShape::Strip at = shape.strip(first + strip);
    const auto* row = static_cast<const uint8_t*>(data.data) + ptrdiff_t(at.row) * data.stride;
    for (size_t i = 0; i < kStripElements; ++i) {
      uint8_t class_id = kNoClass;
      if (i < at.elements) {
        const T element = load<T>(row, at.column + i);
        const uint8_t key = uint8_t(element >> split.key_shift) & split.key_mask;
        class_id = 0;
        for (int t = 0; t + 1 < split.num_classes; ++t) class_id += key >= split.thresholds[t];
        ++out->total[class_id];
      }
      out->scratch[strip * kStripElements + i] = class_id;
    }
  }
}

template <class T>
void index(ScanRows data, ScanShape shape, const ClassSplit& split, SegmentIndex* out) noexcept {
  for (size_t tile = 0; tile < shape.num_tiles(); ++tile) {
    index_strips<T>(data, shape, split, shape.first_strip(tile), shape.first_strip(tile + 1),
                    out + tile);
  }
}

template <class T>
size_t index_diff(ScanRows a, ScanRows b, ScanShape shape, const ClassSplit& split,
                  SegmentIndex* out, uint16_t* positions) noexcept {
  index_strips<T>(a, shape, split, 0, shape.first_strip(shape.num_tiles()), out);
  uint16_t* to = positions;
  for (size_t row = 0; row < shape.rows; ++row) {
    const auto* x = static_cast<const uint8_t*>(a.data) + ptrdiff_t(row) * a.stride;
    const auto* y = static_cast<const uint8_t*>(b.data) + ptrdiff_t(row) * b.stride;
    for (size_t tile = 0; tile < shape.num_tiles(); ++tile) {
      const size_t columns = shape.columns_of(tile), from = tile * shape.tile_columns * sizeof(T),
                   first = shape.first_strip(tile) + row * ScanShape::strips(columns);
      for (size_t left = diff<T>(x + from, y + from, columns, to); left != 0; --left) {
        *to = uint16_t(*to + first * kStripElements);
        ++to;
      }
    }
  }
  return size_t(to - positions);
}

void counts_before(const SegmentIndex& index, ScanShape shape, ClassCounts* counts) noexcept {
  const size_t tiles = shape.num_tiles();
  for (size_t i = 0; i < tiles; ++i) {
    for (size_t c = 0; c < kMaxClasses; ++c) counts[i][c] = index.before[c][shape.first_strip(i)];
  }
  std::copy_n(index.total, kMaxClasses, counts[tiles].begin());
}

void rank(const SegmentIndex& index, const ClassSplit&, const uint16_t* positions,
          const uint8_t* classes, size_t count, uint16_t* ranks) noexcept {
  for (size_t i = 0; i < count; ++i) {
    const size_t strip = positions[i] / kStripElements;
    uint16_t rank = index.before[classes[i]][strip];
    for (size_t at = strip * kStripElements; at < positions[i]; ++at) {
      rank += index.scratch[at] == classes[i];
    }
    ranks[i] = rank;
  }
}

void locate(const SegmentIndex& index, const ClassSplit&, uint8_t class_id, const uint32_t* ranks,
            uint32_t base, size_t count, uint16_t* positions) noexcept {
  const uint16_t* const before = index.before[class_id];
  for (size_t i = 0; i < count; ++i) {
    const uint32_t target = ranks[i] - base;
    const size_t strip =
        size_t(std::upper_bound(before, before + kSegmentStrips, target) - before) - 1;
    size_t at = strip * kStripElements;
    for (uint32_t left = target - before[strip];; ++at) {
      if (index.scratch[at] == class_id && left-- == 0) break;
    }
    positions[i] = uint16_t(at);
  }
}

void sum_part(const uint8_t* data, size_t num_words, size_t column, uint64_t* products) {
  for (size_t i = 0; i < num_words; ++i) {
    const auto word = load<uint64_t>(data, i);
    for (size_t lane = 0; lane < sum128::kLanes; ++lane) {
      products[lane] += sum128::product(word, sum128::kWordKeys.keys[lane][column + i]);
    }
  }
}

void sum_whole(const uint8_t* data, size_t count, uint64_t segment, uint64_t* sums) {
  for (; count != 0; --count, ++segment, data += sum128::kSegmentBytes) {
    uint64_t products[sum128::kLanes] = {};
    sum_part(data, sum128::kSegmentWords, 0, products);
    for (size_t lane = 0; lane < sum128::kLanes; ++lane) {
      sums[lane] += sum128::segment_key(lane, segment) * products[lane];
    }
  }
}

void sum(const uint8_t* data, size_t num_words, uint64_t position, uint64_t* sums) noexcept {
  sum128::for_segments(data, num_words, position, sums, sum_whole, sum_part);
}

template <KeyForm kForm>
size_t count_far(const void* data, size_t n, uint8_t base) noexcept {
  size_t count = 0;
  for (size_t i = 0; i < n; ++i) {
    const uint8_t* element = static_cast<const uint8_t*>(data) + i * key_planes::width(kForm);
    const uint8_t key = key_planes::split(kForm, key_planes::load_top(kForm, element)).key;
    count += key_planes::code_of(key, base) == kFarKey;
  }
  return count;
}

template <KeyForm kForm>
size_t split_keys(const void* data, size_t n, uint8_t base, uint8_t* planes,
                  uint8_t* far) noexcept {
  size_t count = 0;
  for (size_t at = 0; at < n; at += kGroupElements) {
    count +=
        key_planes::split_group(kForm, static_cast<const uint8_t*>(data), at,
                                std::min(n, at + kGroupElements), n, base, planes, far + count);
  }
  return count;
}

template <KeyForm kForm>
bool join_keys(const uint8_t* planes, const uint8_t* far, size_t num_far, uint8_t base, size_t n,
               void* data) noexcept {
  key_planes::FarKeys left{far, far + num_far};
  bool good = true;
  for (size_t at = 0; good && at < n; at += kGroupElements) {
    good = key_planes::join_group(kForm, planes, at, std::min(n, at + kGroupElements), n, base,
                                  &left, static_cast<uint8_t*>(data));
  }
  return good && left.next == left.end;
}

template <class T>
uint32_t largest(const void* data, size_t n) noexcept {
  uint32_t found = 0;
  for (size_t i = 0; i < n; ++i) {
    found = std::max<uint32_t>(found, load<T>(data, i) & (T(~T{0}) >> 1));
  }
  return found;
}

template <WideFloat kFrom>
void to_e4m3(const void* data, size_t n, float inverse, uint8_t* out) noexcept {
  for (size_t i = 0; i < n; ++i) out[i] = fp8::e4m3_of(fp8::load<kFrom>(data, i) * inverse);
}

#define DW_FORMS(f) \
  { f<KeyForm::k8of16>, f<KeyForm::k5of16>, f<KeyForm::k8of32> }

#define DW_WIDTHS(f) \
  { f<uint8_t>, f<uint16_t>, f<uint32_t>, f<uint64_t> }

}  // namespace

const Kernels& scalar_kernels() noexcept {
  static constexpr Kernels kTable = {
      "scalar",
      DW_WIDTHS(diff),
      DW_WIDTHS(diff_mask),
      equal,
      DW_WIDTHS(gather),
      DW_WIDTHS(scatter),
      DW_WIDTHS(exchange),
      DW_WIDTHS(index),
      DW_WIDTHS(index_diff),
      counts_before,
      rank,
      locate,
      sum,
      DW_FORMS(count_far),
      DW_FORMS(split_keys),
      DW_FORMS(join_keys),
      {largest<uint16_t>, largest<uint32_t>},
      {to_e4m3<WideFloat::kBf16>, to_e4m3<WideFloat::kF32>, to_e4m3<WideFloat::kF32AsBf16>},
  };
  return kTable;
}

}  // namespace deltawire
