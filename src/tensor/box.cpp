#include "tensor/box.h"

#include <algorithm>
#include <cstring>
#include <random>

#include "base/bytes.h"
#include "deltawire/tensor.h"
#include "tensor/text.h"

namespace deltawire {

std::string box_to_string(const Box& box) {
  return join_numbers(box.offset) + "+" + join_numbers(box.extent);
}

Result<Box> parse_box(std::string_view text) {
  Box box;
  const size_t plus = text.find('+');
  if (plus == std::string_view::npos || !split_numbers(text.substr(0, plus), &box.offset) ||
      !split_numbers(text.substr(plus + 1), &box.extent) ||
      box.offset.size() != box.extent.size()) {
    return corruption("a box is offsets+extents, got \"" + std::string(text.substr(0, 80)) + "\"");
  }
  return box;
}

Status check_box(const Box& box, DType dtype, const Shape& shape) {
  if (box.whole()) return {};
  const auto bad = [&](const std::string& why) {
    return invalid_argument("box " + box_to_string(box) + " of a tensor " + shape_to_string(shape) +
                            ": " + why);
  };
  if (box.offset.size() != shape.size() || box.extent.size() != shape.size()) {
    return bad("expected " + std::to_string(shape.size()) + " dimensions");
  }
  for (size_t d = 0; d < shape.size(); ++d) {
    uint64_t end;
    if (!checked_add(box.offset[d], box.extent[d], &end) || end > shape[d]) {
      return bad("leaves dimension " + std::to_string(d));
    }
  }
  const uint64_t bits = dtype_bits(dtype);
  if (bits % 8 != 0 && (box.offset.back() * bits % 8 != 0 || box.extent.back() * bits % 8 != 0 ||
                        shape.back() * bits % 8 != 0)) {
    return bad("cuts a byte of packed elements");
  }
  return {};
}

Shape box_shape(const Box& box, const Shape& shape) { return box.whole() ? shape : box.extent; }

void copy_box_out(const Box& box, DType dtype, const Shape& shape, std::span<const uint8_t> tensor,
                  std::span<uint8_t> contents) {
  if (box.whole()) {
    std::copy(tensor.begin(), tensor.end(), contents.begin());
    return;
  }
  const BoxRows rows(box, dtype, shape);
  for (uint64_t row = 0; row < rows.count(); ++row) {
    std::memcpy(contents.data() + row * rows.row_bytes(), tensor.data() + rows.position(row),
                rows.row_bytes());
  }
}

void copy_box_in(const Box& box, DType dtype, const Shape& shape, std::span<const uint8_t> contents,
                 std::span<uint8_t> tensor) {
  if (box.whole()) {
    std::copy(contents.begin(), contents.end(), tensor.begin());
    return;
  }
  const BoxRows rows(box, dtype, shape);
  for (uint64_t row = 0; row < rows.count(); ++row) {
    std::memcpy(tensor.data() + rows.position(row), contents.data() + row * rows.row_bytes(),
                rows.row_bytes());
  }
}

namespace {

// The limit of pairs that are compared to name two overlapping boxes.
constexpr uint64_t kMostPairs = 20'000'000;

// Give every place of every dimension a random number r. A box adds the product, over its
// dimensions, of r(begin) - r(end), which is the sum of its corners' products with alternating
// signs. Corners cancel out where boxes meet, so boxes that cover a tensor once add up to what the
// tensor adds by itself. Others are equal to it only at a root of a polynomial of as many degrees
// as dimensions: with a chance of 1 in 2^56, because the numbers are not known in advance.
class CornerSum {
 public:
  CornerSum() : key_(uint64_t{std::random_device()()} << 32 | std::random_device()()) {}

  uint64_t of(const Box& box, const Shape& shape) const {
    uint64_t product = 1;
    for (size_t d = 0; d < shape.size(); ++d) {
      const uint64_t begin = box.whole() ? 0 : box.offset[d];
      const uint64_t end = box.whole() ? shape[d] : begin + box.extent[d];
      product = multiply(product, add(number(d, begin), kPrime - number(d, end)));
    }
    return product;
  }
  static uint64_t add(uint64_t a, uint64_t b) { return (a + b) % kPrime; }

 private:
  static constexpr uint64_t kPrime = (uint64_t{1} << 61) - 1;

  static uint64_t multiply(uint64_t a, uint64_t b) {
    __extension__ typedef unsigned __int128 Wide;
    return uint64_t(Wide(a) * b % kPrime);
  }
  static uint64_t mix(uint64_t x) {  // splitmix64
    x += 0x9e3779b97f4a7c15ULL;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ULL;
    x = (x ^ x >> 27) * 0x94d049bb133111ebULL;
    return x ^ x >> 31;
  }
  uint64_t number(size_t dimension, uint64_t place) const {
    return mix(mix(mix(key_ ^ dimension) + place) ^ key_) % kPrime;
  }

  const uint64_t key_;
};

Status name_overlap(std::span<const Box* const> boxes) {
  uint64_t pairs = 0;
  for (size_t i = 0; i < boxes.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (++pairs > kMostPairs) return {};
      if (overlap(*boxes[i], *boxes[j])) {
        return corruption("boxes " + box_to_string(*boxes[j]) + " and " + box_to_string(*boxes[i]) +
                          " overlap");
      }
    }
  }
  return {};
}

}  // namespace

Status check_cover(DType dtype, const Shape& shape, std::span<const Box* const> boxes) {
  DW_ASSIGN_OR_RETURN(const uint64_t all, tensor_size_bytes(dtype, shape));
  const CornerSum corners;
  uint64_t covered = 0, sum = 0;
  for (const Box* const box : boxes) {
    DW_RETURN_IF_ERROR(check_box(*box, dtype, shape));
    DW_ASSIGN_OR_RETURN(const uint64_t size, tensor_size_bytes(dtype, box_shape(*box, shape)));
    covered += size;
    sum = CornerSum::add(sum, corners.of(*box, shape));
  }
  if (covered == all && sum == corners.of({}, shape)) return {};
  DW_RETURN_IF_ERROR(name_overlap(boxes));
  if (covered == all) return corruption("boxes overlap");
  return corruption("boxes cover " + std::to_string(covered) + " of " + std::to_string(all) +
                    " bytes");
}

std::vector<Slice> split_rows(const Box& box, DType dtype, const Shape& shape, uint64_t max_bytes) {
  const Shape extent = box_shape(box, shape);
  const uint64_t total = tensor_size_bytes(dtype, extent).value();  // checked by the caller
  const std::vector<Slice> uncut = {{box, 0, total}};
  if (total <= max_bytes || extent.empty()) return uncut;

  // The first dimension whose rows are small enough is cut; those before it go one by one.
  const uint64_t bits = dtype_bits(dtype);
  size_t cut = 0;
  uint64_t row_bits = total * 8 / extent[0];
  while (row_bits > max_bytes * 8 && cut + 1 < extent.size()) row_bits /= extent[++cut];
  uint64_t rows = std::clamp<uint64_t>(max_bytes * 8 / row_bits, 1, extent[cut]);
  if (bits % 8 != 0 && cut + 1 == extent.size() && rows > 8) rows -= rows % 8;

  const Shape origin = box.whole() ? Shape(shape.size(), 0) : box.offset;
  std::vector<Slice> slices;
  uint64_t outer = 1, begin = 0;
  for (size_t d = 0; d < cut; ++d) outer *= extent[d];
  for (uint64_t i = 0; i < outer; ++i) {
    Box slice{origin, extent};
    uint64_t left = i;
    for (size_t d = cut; d-- > 0;) {
      slice.offset[d] += left % extent[d];
      slice.extent[d] = 1;
      left /= extent[d];
    }
    for (uint64_t row = 0; row < extent[cut]; row += rows) {
      slice.offset[cut] = origin[cut] + row;
      slice.extent[cut] = std::min(rows, extent[cut] - row);
      if (!check_box(slice, dtype, shape).ok()) return uncut;
      const uint64_t size = tensor_size_bytes(dtype, slice.extent).value();
      slices.push_back({slice, begin, size});
      begin += size;
    }
  }
  return slices;
}

}  // namespace deltawire
