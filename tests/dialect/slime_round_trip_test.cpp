// What the writer of slime's files makes, its reader reads.
#include "base/json.h"
#include "foreign_model.h"

namespace deltawire::testing {
namespace {

struct SlimeForm {
  const char* encoding;
  const char* checksum;
};

class SlimeRoundTrip : public ::testing::TestWithParam<SlimeForm> {
 protected:
  const Dialect& dialect_ = *find_dialect("slime");
  std::shared_ptr<MemoryStore> store_ = std::make_shared<MemoryStore>();
  ForeignOptions options_{.encoding = GetParam().encoding, .checksum = GetParam().checksum};
  bool full_ = options_.encoding == "full";

  void SetUp() override {
    const auto kind = parse_checksum_kind(options_.checksum);
    if (kind && !check_available(*kind).ok())
      GTEST_SKIP() << "this build has no " << options_.checksum;
  }
};

TEST_P(SlimeRoundTrip, EveryDtypeAndDensity) {
  std::vector<TestTensor> held = one_of_each_dtype();
  uint64_t version = 1;
  for (const double density : {0.0, 0.001, 0.012, 0.3, 1.0}) {
    const std::vector<TestTensor> next = changed(held, density);
    Status status = write_foreign(dialect_, store_, version, held, next, options_, full_);
    ASSERT_TRUE(status.ok()) << status.to_string();
    status = apply_foreign(dialect_, *store_, version, &held);
    ASSERT_TRUE(status.ok()) << status.to_string();
    expect_same(held, next);
    ++version;
  }
  EXPECT_EQ(*dialect_.versions(*store_), (std::vector<uint64_t>{1, 2, 3, 4, 5}));
}

TEST_P(SlimeRoundTrip, PartsAreCutBySize) {
  const std::vector<TestTensor> before = one_of_each_dtype(), after = changed(before, 0.05);
  options_.buffer_bytes = 300'000;
  ASSERT_TRUE(write_foreign(dialect_, store_, 3, before, after, options_, full_).ok());
  const auto opened = must(dialect_.open(*store_, 3));
  EXPECT_EQ(opened->info().num_files, 4U);  // the index, and 3 parts
  EXPECT_TRUE(store_->stat("weight_v000003/model-00002-of-00003.safetensors").ok());
  std::vector<TestTensor> held = before;
  ASSERT_TRUE(apply_foreign(dialect_, *store_, 3, &held).ok());
  expect_same(held, after);
}

TEST_P(SlimeRoundTrip, ThreadsMakeNoDifference) {
  const std::vector<TestTensor> before = one_of_each_dtype(), after = changed(before, 0.02);
  ThreadPool pool(3);
  const auto other = std::make_shared<MemoryStore>();
  ASSERT_TRUE(write_foreign(dialect_, store_, 1, before, after, options_, full_).ok());
  ASSERT_TRUE(write_foreign(dialect_, other, 1, before, after, options_, full_, &pool).ok());
  const std::string part = "weight_v000001/model-00000-of-00001.safetensors";
  EXPECT_EQ(*store_->get(part, 1 << 30), *other->get(part, 1 << 30));
}

TEST_P(SlimeRoundTrip, NoChangeIsAnIndexWithoutParts) {
  ASSERT_TRUE(write_foreign(dialect_, store_, 2, {}, {}, options_, full_).ok());
  const auto opened = must(dialect_.open(*store_, 2));
  EXPECT_TRUE(opened->info().tensors.empty());
  EXPECT_EQ(opened->info().num_files, 1U);
}

INSTANTIATE_TEST_SUITE_P(Forms, SlimeRoundTrip,
                         ::testing::Values(SlimeForm{"xor", ""}, SlimeForm{"xor", "adler32"},
                                           SlimeForm{"xor", "blake3"}, SlimeForm{"overwrite", ""},
                                           SlimeForm{"overwrite", "adler32"},
                                           SlimeForm{"full", ""}),
                         [](const auto& info) {
                           return std::string(info.param.encoding) + "_" + info.param.checksum;
                         });

TEST(SlimeFull, IsAnOrdinaryCheckpoint) {
  const Dialect& dialect = *find_dialect("slime");
  TempFolder folder;
  const std::shared_ptr<Store> store = *open_store(folder.path().string(), {});
  const auto tensors = one_of_each_dtype();
  ASSERT_TRUE(write_foreign(dialect, store, 4, {}, tensors, {}, true).ok());
  const auto index =
      parse_json(read_file(folder.path() / "weight_v000004/model.safetensors.index.json"));
  EXPECT_FALSE(index.at("metadata").contains("delta_encoding"));
  EXPECT_EQ(index.at("weight_map").size(), tensors.size());
  const auto opened = must(dialect.open(*store, 4));
  EXPECT_TRUE(opened->info().full);
  EXPECT_FALSE(opened->info().base.has_value());
  EXPECT_EQ(opened->info().encoding, "full");
  for (const ForeignTensor& tensor : opened->info().tensors) {
    const auto it = std::ranges::find(tensors, tensor.name, &TestTensor::name);
    EXPECT_EQ(tensor.dtype, it->dtype);
    EXPECT_EQ(tensor.shape, it->shape);
  }
}

}  // namespace
}  // namespace deltawire::testing
