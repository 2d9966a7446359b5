#include "tensor/box_cover.h"

#include <random>

#include "tensor/boxes.h"

namespace deltawire {
namespace {

// How many pairs are compared to name two boxes that overlap.
constexpr uint64_t kMostPairs = 20'000'000;

// Give every place of every dimension a random number r. A box adds the product, over its
// dimensions, of r(begin) - r(end), which is the sum of its corners' products with alternating
// signs. Corners cancel out where boxes meet, so boxes that cover a tensor once add up to what the
// tensor adds by itself. Others are equal to it only at a root of a polynomial of as many degrees
// as dimensions: by chance once in 2^56, and nobody knows the numbers before.
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

}  // namespace deltawire
