// The tables at the start of a `tight` payload: exactly what is written can be read.
#include "codec/tight_model.h"

#include <gtest/gtest.h>

#include <vector>

#include "codec/tight_payload.h"
#include "test_files.h"

namespace deltawire::tight {
namespace {

using deltawire::testing::is_failure;

constexpr Layout kBf16{2, 7, 0xff};

// Every code has five bits: the number of codes determines the unused bits of the last byte.
Model fitted(uint32_t zero_codes) {
  Model model;
  model.fitted = true;
  model.split.num_classes = 2;
  model.split.thresholds[0] = 100;
  for (uint8_t& code : model.value_codes[0]) code = 7;
  for (uint8_t& code : model.escape_codes) code = 9;
  for (uint32_t i = 0; i < zero_codes; ++i) model.value_codes[0][2 * i] = 0;  // four bits more
  return model;
}

std::vector<uint8_t> written(const Model& model) { return write_model(model, kBf16.width); }

uint32_t num_bits(uint32_t zero_codes) {
  return 8 + 8 + 8 + 2 * 16 + 5 * (num_value_tokens(2) + num_escapes(2)) + 4 * zero_codes;
}

TEST(TightModel, RejectsNonzeroPaddingBits) {
  for (const uint32_t zero_codes : {0u, 1u}) {
    std::vector<uint8_t> bytes = written(fitted(zero_codes));
    const unsigned unused = -num_bits(zero_codes) & 7;
    ASSERT_EQ(bytes.size(), (num_bits(zero_codes) + 7) / 8);
    ASSERT_GT(unused, 0u);
    size_t consumed = 0;
    ASSERT_TRUE(read_model(kBf16, bytes, &consumed).ok());
    EXPECT_EQ(consumed, bytes.size());
    for (unsigned bit = 8 - unused; bit < 8; ++bit) {
      bytes.back() ^= uint8_t(1 << bit);
      EXPECT_TRUE(is_failure(read_model(kBf16, bytes, &consumed).status(), Code::kCorruption,
                             "tight model", "not zero"))
          << bit;
      // Both decoders, on the CPU and the GPU, start with this.
      EXPECT_EQ(split_payload(kBf16, bytes, 100).status().code(), Code::kCorruption);
      bytes.back() ^= uint8_t(1 << bit);
    }
    bytes.back() ^= uint8_t(1 << (7 - unused));  // the last bit that counts
    EXPECT_TRUE(read_model(kBf16, bytes, &consumed).ok());
  }
}

TEST(TightModel, RejectsTruncation) {
  std::vector<uint8_t> bytes = written(fitted(0));
  bytes.pop_back();
  size_t consumed = 0;
  EXPECT_TRUE(is_failure(read_model(kBf16, bytes, &consumed).status(), Code::kCorruption,
                         "tight model: cut short"));
}

}  // namespace
}  // namespace deltawire::tight
