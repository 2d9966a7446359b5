// Whole arrays as key planes: every target gives the reference's bytes and rejects the same input.
#include "kernels/key_planes.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "kernels/kernels.h"
#include "kernels/targets.h"

namespace deltawire {
namespace {

const size_t kArraySizes[] = {0,   1,   7,    8,    9,    63,   64,   65,    500,   511,
                              512, 513, 1023, 1024, 1100, 4096, 4607, 13000, 16384, 65536};
const KeyForm kForms[] = {KeyForm::k8of16, KeyForm::k5of16, KeyForm::k8of32};

// Elements with keys near `base`, except a share `far` of random ones.
std::vector<uint8_t> make_elements(KeyForm form, size_t n, uint8_t base, double far,
                                   std::mt19937_64& random) {
  std::vector<uint8_t> bytes(1 + n * key_planes::width(form));  // one byte of misalignment in front
  for (uint8_t& byte : bytes) byte = uint8_t(random());
  std::uniform_real_distribution<double> uniform;
  for (size_t i = 0; i < n; ++i) {
    if (uniform(random) < far) continue;
    uint8_t* element = bytes.data() + 1 + i * key_planes::width(form);
    auto parts = key_planes::split(form, key_planes::load_top(form, element));
    parts.key = uint8_t(base + random() % kNearKeys);
    key_planes::store_top(form, key_planes::join(form, parts), element);
  }
  return bytes;
}

class KeyPlanesTest : public testing::TestWithParam<const Kernels*> {};

TEST_P(KeyPlanesTest, MatchScalarAndRoundTrip) {
  const Kernels &target = *GetParam(), &scalar = scalar_kernels();
  std::mt19937_64 random(7);
  for (const KeyForm form : kForms) {
    const size_t f = size_t(form);
    for (const size_t n : kArraySizes) {
      for (const double far : {0.0, 0.02, 0.5, 1.0}) {
        const size_t bases = key_planes::max_base(form) + size_t{1};
        const uint8_t base = uint8_t(far == 0.5 ? bases - 1 : random() % bases);
        const std::vector<uint8_t> data = make_elements(form, n, base, far, random);
        const size_t size = key_planes::bytes(form, n);
        std::vector<uint8_t> expected(size), expected_far(n), got(size + 1, 0xee),
            got_far(n + 1, 0xee);
        const size_t count =
            scalar.split_keys[f](data.data() + 1, n, base, expected.data(), expected_far.data());
        ASSERT_EQ(target.count_far[f](data.data() + 1, n, base), count) << "n " << n;
        ASSERT_EQ(target.split_keys[f](data.data() + 1, n, base, got.data(), got_far.data()),
                  count);
        ASSERT_EQ(got.back(), 0xee);
        ASSERT_EQ(got_far[count], 0xee);
        got.pop_back();
        ASSERT_EQ(got, expected) << "form " << f << " n " << n;
        expected_far.resize(count), got_far.resize(count);
        ASSERT_EQ(got_far, expected_far);
        std::vector<uint8_t> back(data.size());
        back[0] = data[0];
        ASSERT_TRUE(
            target.join_keys[f](got.data(), got_far.data(), count, base, n, back.data() + 1));
        ASSERT_EQ(back, data) << "form " << f << " n " << n;
      }
    }
  }
}

TEST_P(KeyPlanesTest, RejectFarKeysThatDoNotFit) {
  const Kernels& target = *GetParam();
  std::mt19937_64 random(8);
  for (const KeyForm form : kForms) {
    const size_t f = size_t(form);
    for (const size_t n : {size_t{100}, size_t{2000}}) {
      const uint8_t base = 10;
      const std::vector<uint8_t> data = make_elements(form, n, base, 0.3, random);
      std::vector<uint8_t> planes(key_planes::bytes(form, n)), far(n), back(n * 4);
      const size_t count =
          target.split_keys[f](data.data() + 1, n, base, planes.data(), far.data());
      ASSERT_GT(count, 0U);
      const auto joins = [&](size_t num_far) {
        return target.join_keys[f](planes.data(), far.data(), num_far, base, n, back.data());
      };
      EXPECT_TRUE(joins(count));
      EXPECT_FALSE(joins(count - 1)) << "too few";
      EXPECT_FALSE(joins(count + 1)) << "too many";
      const uint8_t kept = far[count / 2];
      far[count / 2] = base + 3;
      EXPECT_FALSE(joins(count)) << "has a code";
      if (form == KeyForm::k5of16) {
        far[count / 2] = 32;
        EXPECT_FALSE(joins(count)) << "no such key";
      }
      far[count / 2] = kept;
      EXPECT_TRUE(joins(count));
    }
  }
}

TEST_P(KeyPlanesTest, RejectNonzeroBitsAfterTheLastElement) {
  const Kernels& target = *GetParam();
  for (const KeyForm form : kForms) {
    const size_t n = 9;  // two columns, of which the last rows are empty
    std::vector<uint8_t> data(n * key_planes::width(form)), planes(key_planes::bytes(form, n));
    uint8_t far[9];
    ASSERT_EQ(target.split_keys[size_t(form)](data.data(), n, 0, planes.data(), far), 0U);
    ASSERT_TRUE(target.join_keys[size_t(form)](planes.data(), far, 0, 0, n, data.data()));
    planes.back() |= 0x80;
    EXPECT_FALSE(target.join_keys[size_t(form)](planes.data(), far, 0, 0, n, data.data()));
  }
}

INSTANTIATE_TEST_SUITE_P(AllTargets, KeyPlanesTest,
                         testing::ValuesIn(available_kernels().begin(), available_kernels().end()),
                         [](const auto& info) {
                           std::string name(info.param->name);
                           for (char& c : name) c = c == '-' ? '_' : c;
                           return name;
                         });

}  // namespace
}  // namespace deltawire
