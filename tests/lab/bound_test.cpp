#include <gtest/gtest.h>

#include <cmath>

#include "lab/bench/data.h"
#include "lab/bench_tensors.h"

namespace deltawire::cli {
namespace {

constexpr Layout kBf16{2, 7, 0xff};
constexpr Layout kBytes{1, 4, 0x0f};

double entropy(double p) { return -p * std::log2(p) - (1 - p) * std::log2(1 - p); }

TEST(Bound, IsZeroWithoutChanges) {
  const auto data = random_tensor(2, 1000, 0);
  const Bound bound = tensor_bound(data.tensor);
  EXPECT_EQ(bound.conditioned(), 0);
}

TEST(Bound, IsZeroForAnEmptyTensor) {
  EXPECT_EQ(tensor_bound(random_tensor(4, 0, 0).tensor).conditioned(), 0);
}

TEST(Bound, OneKeyCostsTheEntropyOfItsShare) {
  std::vector<uint16_t> before(1000, 0x3f80), after = before;
  for (size_t i = 0; i < 250; ++i) after[i * 4] += 1;
  const Bound bound = tensor_bound(tensor_of(kBf16, before, after).tensor);
  EXPECT_NEAR(bound.positions, 1000 * entropy(0.25) / 8, 1e-9);
  EXPECT_NEAR(bound.values, 0, 1e-9);  // always +1
}

TEST(Bound, PositionsAreFreeWhenKeysDetermineThem) {
  std::vector<uint16_t> before, after;
  for (size_t i = 0; i < 512; ++i) {
    before.push_back(i % 2 == 0 ? 0x3f80 : 0x3c00);
    after.push_back(uint16_t(before.back() + (i % 2)));
  }
  const Bound bound = tensor_bound(tensor_of(kBf16, before, after).tensor);
  EXPECT_NEAR(bound.positions, 0, 1e-9);
}

TEST(Bound, ValuesAreStepsModuloTheWidth) {
  // 0 -> 0xff is the step -1, as 0x10 -> 0x0f is; two keys, each with one kind of step.
  const std::vector<uint8_t> before = {0x00, 0x00, 0x10, 0x10}, after = {0xff, 0xff, 0x0f, 0x11};
  const Bound bound = tensor_bound(tensor_of(kBytes, before, after).tensor);
  EXPECT_NEAR(bound.positions, 0, 1e-9);     // all changed
  EXPECT_NEAR(bound.values, 2.0 / 8, 1e-9);  // key 0: certain; key 1: one bit each
}

TEST(Bound, IsTheSameForEveryWidth) {
  const auto total = []<class Element>(Element, uint8_t shift) {
    std::vector<Element> before, after;
    for (size_t i = 0; i < 4096; ++i) {
      before.push_back(Element(Element(i % 3) << shift));
      after.push_back(Element(before.back() + (i % 7 == 0 ? 1 : i % 11 == 0 ? -1 : 0)));
    }
    const Layout layout{sizeof(Element), shift, 0x03};
    return tensor_bound(tensor_of(layout, before, after).tensor).conditioned();
  };
  const double expected = total(uint8_t{}, 4);
  EXPECT_GT(expected, 0);
  EXPECT_DOUBLE_EQ(total(uint16_t{}, 7), expected);
  EXPECT_DOUBLE_EQ(total(uint32_t{}, 23), expected);
  EXPECT_DOUBLE_EQ(total(uint64_t{}, 52), expected);
}

TEST(Bound, DoesNotDependOnThreads) {
  std::vector<TensorInMemory> owners;
  for (size_t i = 1; i < 20; ++i) owners.push_back(random_tensor(2, 500 * i, 10));
  std::vector<BenchTensor> tensors;
  for (const TensorInMemory& owner : owners) tensors.push_back(owner.tensor);
  ThreadPool pool(4);
  EXPECT_EQ(bound_of(tensors, nullptr).conditioned(), bound_of(tensors, &pool).conditioned());
}

}  // namespace
}  // namespace deltawire::cli
