// The share of steps of +-1, estimated from the front of payloads.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "codec/codec.h"
#include "codec/tight_model.h"
#include "codec_arrays.h"
#include "test_files.h"

namespace deltawire::tight {
namespace {

struct Arrays {
  std::vector<uint8_t> before, after;
  Layout layout;

  // Of those that changed; NaN: none did.
  double truth() const {
    const unsigned width = layout.width;
    const uint64_t mask = ~uint64_t{0} >> (64 - 8 * width);
    double units = 0, all = 0;
    for (size_t i = 0; i < before.size() / width; ++i) {
      const uint64_t step = (get_element(after, width, i) - get_element(before, width, i)) & mask;
      units += step == 1 || step == mask;
      all += step != 0;
    }
    return units / all;
  }
  std::vector<uint8_t> payload() const {
    return must(tight_codec().encode(layout, before, after, nullptr)).payload;
  }
  std::optional<double> estimate() const {
    std::vector<uint8_t> front = payload();
    front.resize(std::min(front.size(), kMaxModelBytes));
    front.shrink_to_fit();
    return share_of_unit_steps(layout, front);
  }
};

uint16_t bf16(double value) {
  const uint32_t bits = std::bit_cast<uint32_t>(float(value));
  return uint16_t((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// Weights of standard deviation 0.02 and updates of a mean size relative to it.
enum class Law : uint8_t { kExponential, kNormal, kConstant };
Arrays trained(size_t n, double relative, Law law, double mean = 0, double deviation = 0.02) {
  std::mt19937_64 random(n);
  std::normal_distribution<double> normal;
  std::exponential_distribution<double> exponential;
  Arrays arrays{std::vector<uint8_t>(2 * n), std::vector<uint8_t>(2 * n), deltawire::layout_of(2)};
  for (size_t i = 0; i < n; ++i) {
    const double size = law == Law::kExponential ? exponential(random)
                        : law == Law::kNormal    ? std::abs(normal(random))
                                                 : 1;
    const double weight = mean + normal(random) * deviation;
    const double update = size * relative * deviation * (random() % 2 != 0 ? 1 : -1);
    set_element(arrays.before, 2, i, bf16(weight));
    set_element(arrays.after, 2, i, bf16(weight + update));
  }
  return arrays;
}

// Steps whose sizes have nothing to do with the weights: a share of +-1, the others up to
// `largest`.
Arrays mixed(unsigned width, size_t n, double density, double share, unsigned largest) {
  std::mt19937_64 random(n + width);
  std::uniform_real_distribution<double> uniform;
  Arrays arrays{std::vector<uint8_t>(width * n), {}, deltawire::layout_of(width)};
  for (size_t i = 0; i < n; ++i) {
    const uint64_t key = uint64_t(110 + std::min(12, 12 - std::countr_zero(random() | 1 << 12)));
    const uint64_t mask = (uint64_t{1} << arrays.layout.key_shift) - 1;
    set_element(arrays.before, width, i, key << arrays.layout.key_shift | (random() & mask));
  }
  arrays.after = arrays.before;
  for (size_t i = 0; i < n; ++i) {
    if (uniform(random) >= density) continue;
    const uint64_t size = uniform(random) < share ? 1 : 2 + random() % (largest - 1);
    const uint64_t old = get_element(arrays.before, width, i);
    set_element(arrays.after, width, i, random() % 2 != 0 ? old + size : old - size);
  }
  return arrays;
}

TEST(UnitSteps, EstimateIsCloseForTrainedWeights) {
  double worst = 0, least = 1, most = 0;
  for (const Law law : {Law::kExponential, Law::kNormal}) {
    for (const double relative : {1e-5, 1e-4, 1e-3, 3e-3, 1e-2, 3e-2}) {
      for (const size_t n : {size_t{1} << 17, size_t{3} << 19}) {
        const Arrays arrays = trained(n, relative, law);
        const double truth = arrays.truth();
        const std::optional<double> estimate = arrays.estimate();
        ASSERT_TRUE(estimate) << relative << ", " << n << ": " << truth;
        EXPECT_NEAR(*estimate, truth, 0.03) << relative << ", " << n;
        worst = std::max(worst, std::abs(*estimate - truth));
        least = std::min(least, truth);
        most = std::max(most, truth);
      }
    }
  }
  EXPECT_LT(least, 0.2);  // the whole range was there
  EXPECT_GT(most, 0.88);
  RecordProperty("worst", std::to_string(worst));
}

TEST(UnitSteps, EstimateIsCloseForEveryWidthAndShare) {
  double worst = 0;
  for (const unsigned width : {1U, 2U, 4U, 8U}) {
    for (const double share : {0.1, 0.3, 0.5, 0.7, 0.9, 1.0}) {
      for (const double density : {0.02, 0.3, 1.0}) {
        for (const unsigned largest : {2U, 40U}) {
          const Arrays arrays = mixed(width, 1 << 18, density, share, largest);
          const double truth = arrays.truth();
          const std::optional<double> estimate = arrays.estimate();
          ASSERT_TRUE(estimate) << width << ", " << density << ", " << share;
          // Classes of units, which blocks code without tables, are in the tables' statistics.
          EXPECT_NEAR(*estimate, truth, share == 1 ? 0.001 : 0.08)
              << width << ", " << density << ", " << share << ", " << largest;
          worst = std::max(worst, std::abs(*estimate - truth));
        }
      }
    }
  }
  RecordProperty("worst", std::to_string(worst));
}

TEST(UnitSteps, NoEstimateWhereKeysMatterTooMuch) {
  for (const double mean : {0.0, 1.0}) {
    for (const double relative : {1e-2, 3e-2, 0.1, 0.2}) {
      const Arrays arrays =
          trained(1 << 17, relative, Law::kConstant, mean, mean == 0 ? 0.02 : 0.05);
      const double truth = arrays.truth();
      EXPECT_NEAR(arrays.estimate().value_or(truth), truth, 0.1) << mean << ", " << relative;
    }
  }
  EXPECT_FALSE(trained(1 << 17, 0.2, Law::kConstant, 1, 0.05).estimate());
}

TEST(UnitSteps, RejectsLawModelsAndHostileFronts) {
  EXPECT_FALSE(mixed(2, 300, 0.1, 0.5, 4).estimate());  // too few changes for tables
  EXPECT_FALSE(share_of_unit_steps(deltawire::layout_of(2), {}));

  const Arrays arrays = mixed(2, 1 << 16, 0.1, 0.6, 9);
  const std::vector<uint8_t> payload = arrays.payload();
  size_t model_bytes = 0;
  must(read_model(arrays.layout, payload, &model_bytes));
  for (size_t size = 0; size <= model_bytes + 3; ++size) {  // allocated anew, to see overruns
    const std::vector<uint8_t> front(payload.begin(), payload.begin() + ptrdiff_t(size));
    const std::optional<double> estimate = share_of_unit_steps(arrays.layout, front);
    EXPECT_EQ(estimate.has_value(), size >= model_bytes) << size;
  }

  std::mt19937_64 random(5);
  for (int i = 0; i < 20'000; ++i) {
    std::vector<uint8_t> front(payload.begin(), payload.begin() + ptrdiff_t(model_bytes));
    for (int flips = 1 + int(random() % 8); flips > 0; --flips) {
      front[random() % (i % 2 != 0 ? 8 : front.size())] = uint8_t(random());
    }
    for (const unsigned width : {1U, 2U, 4U, 8U}) {
      const double estimate = share_of_unit_steps(deltawire::layout_of(width), front).value_or(0);
      EXPECT_TRUE(estimate >= 0 && estimate <= 1) << estimate;
    }
  }
}

}  // namespace
}  // namespace deltawire::tight
