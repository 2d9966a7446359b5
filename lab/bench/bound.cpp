#include "lab/bench/bound.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

namespace deltawire::cli {
namespace {

double xlog2x(double x) { return x > 0 ? x * std::log2(x) : 0; }

// Bits that say which k of n, at k / n each: n H(k / n). None and all are certain: no bits, and no
// rest of a rounding either.
double choice_bits(uint64_t n, uint64_t k) {
  if (k == 0 || k == n) return 0;
  return xlog2x(double(n)) - xlog2x(double(k)) - xlog2x(double(n - k));
}

// Bits for a sequence of values drawn by their own frequencies. Sorts them.
double sequence_bits(std::vector<uint64_t>* values) {
  std::sort(values->begin(), values->end());
  if (values->empty() || values->front() == values->back()) return 0;
  double bits = xlog2x(double(values->size()));
  for (auto run = values->begin(); run != values->end();) {
    const auto end = std::upper_bound(run, values->end(), *run);
    bits -= xlog2x(double(end - run));
    run = end;
  }
  return bits;
}

template <class Element>
Bound bound_of_elements(const BenchTensor& tensor) {
  const Layout layout = tensor.layout;
  const size_t n = tensor.after.size() / sizeof(Element);
  std::array<uint64_t, 256> seen{};
  std::array<std::vector<uint64_t>, 256> steps;  // of the changed elements, by key
  for (size_t i = 0; i < n; ++i) {
    const auto before = load_le<Element>(tensor.before.data() + i * sizeof(Element));
    const auto after = load_le<Element>(tensor.after.data() + i * sizeof(Element));
    const size_t key = size_t(before >> layout.key_shift) & layout.key_mask;
    ++seen[key];
    if (before != after) steps[key].push_back(Element(after - before));
  }
  Bound bits;
  uint64_t changed = 0;
  for (size_t key = 0; key < seen.size(); ++key) {
    bits.positions += choice_bits(seen[key], steps[key].size());
    bits.values += sequence_bits(&steps[key]);
    changed += steps[key].size();
  }
  bits.plain_positions = choice_bits(n, changed);
  return {bits.positions / 8, bits.values / 8, bits.plain_positions / 8};
}

}  // namespace

Bound tensor_bound(const BenchTensor& tensor) {
  switch (tensor.layout.width) {
    case 1:
      return bound_of_elements<uint8_t>(tensor);
    case 2:
      return bound_of_elements<uint16_t>(tensor);
    case 4:
      return bound_of_elements<uint32_t>(tensor);
    default:
      return bound_of_elements<uint64_t>(tensor);
  }
}

Bound bound_of(std::span<const BenchTensor> tensors, ThreadPool* pool) {
  std::vector<Bound> each(tensors.size());
  parallel_for(pool, tensors.size(),
               [&](size_t i, unsigned) { each[i] = tensor_bound(tensors[i]); });
  Bound sum;
  for (const Bound& one : each) {
    sum.positions += one.positions;
    sum.values += one.values;
    sum.plain_positions += one.plain_positions;
  }
  return sum;
}

}  // namespace deltawire::cli
