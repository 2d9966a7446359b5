// Tensors that are made as they are read: the same versions as of bytes that are there, and what
// making fails with is what publishing fails with.
#include "support/hooked_store.h"
#include "support/published_model.h"

namespace deltawire::testing {
namespace {

// A copy for each read: nothing of it is there before and after.
class ComputedBody final : public Body {
 public:
  ComputedBody(const TestTensor& tensor, const Status& failure)
      : tensor_(tensor), failure_(failure) {}
  uint64_t size() const noexcept override { return tensor_.bytes.size(); }
  Status read(uint64_t offset, std::span<uint8_t> out) const override {
    if (!failure_.ok()) return failure_;
    std::copy_n(tensor_.bytes.begin() + ptrdiff_t(offset), out.size(), out.begin());
    return {};
  }

 private:
  const TestTensor& tensor_;
  const Status& failure_;
};

class ComputedTest : public ::testing::Test {
 protected:
  ComputedTest() {
    model_.tensors.push_back(make_tensor("embed", DType::kF8_E4M3, {4000, 600}, 1));
    model_.tensors.push_back(make_tensor("scales", DType::kF32, {32, 5}, 2));
  }
  std::vector<PublishTensor> made() const {
    std::vector<PublishTensor> tensors;
    for (const TestTensor& tensor : model_.tensors) {
      PublishTensor own{{tensor.name, tensor.dtype, tensor.shape, {}}, {}};
      own.computed = std::make_shared<ComputedBody>(tensor, failure_);
      tensors.push_back(std::move(own));
    }
    return tensors;
  }
  void step() {
    for (TestTensor& tensor : model_.tensors) {
      for (size_t i = 7; i < tensor.bytes.size(); i += 701) tensor.bytes[i] ^= 1;
    }
  }

  std::shared_ptr<HookedStore> store_ = std::make_shared<HookedStore>();
  Model model_;
  Status failure_;
};

TEST_F(ComputedTest, VersionsAreThoseOfBytesThatAreThere) {
  TempFolder folder;
  for (const bool on_disk : {false, true}) {
    store_ = std::make_shared<HookedStore>();
    PublishOptions how;
    how.limits.memory_bytes = uint64_t{32} << 20;  // the larger one is cut in slices
    if (on_disk) how.snapshot = SnapshotInFolder{folder.path()};
    Publisher publisher = Publisher::open(store_, how).value();
    for (uint64_t version = 0; version < 4; ++version) {
      if (version == 3) {
        ASSERT_TRUE(publisher.capture(made()).ok());
      }
      const auto report = must(version == 3 ? publisher.finish() : publisher.publish(made()));
      EXPECT_EQ(report.full, version == 0) << report.reason;
      EXPECT_TRUE(report.warnings.empty()) << report.warnings[0];
      EXPECT_TRUE(holds(store_, version, model_));
      step();
    }
  }
}

TEST_F(ComputedTest, WhatMakingFailsWithCommitsNothing) {
  Publisher publisher = Publisher::open(store_).value();
  for (uint64_t version = 0; version < 2; ++version) {  // a whole one, and a delta
    failure_ = invalid_argument("tensor \"embed\": holds NaN");
    EXPECT_FAILS(publisher.publish(made()), Code::kInvalidArgument, "holds NaN");
    EXPECT_FALSE(publisher.capture(made()).ok());
    failure_ = {};
    const auto report = must(publisher.publish(made()));
    EXPECT_EQ(report.version, version);
    EXPECT_TRUE(holds(store_, version, model_));
    step();
  }
}

TEST_F(ComputedTest, WhatIsNotOfTheSaidFormIsRefused) {
  Publisher publisher = Publisher::open(store_).value();
  std::vector<PublishTensor> tensors = made();
  tensors[1].view.shape = {32, 6};
  EXPECT_FAILS(publisher.publish(tensors), Code::kInvalidArgument,
               "tensor \"scales\": expected 768 bytes, got 640");
  tensors = made();
  tensors[1].view.bytes = model_.tensors[1].bytes;
  EXPECT_FAILS(publisher.publish(tensors), Code::kInvalidArgument,
               "tensor \"scales\": is made as it is published, and has bytes too");
  EXPECT_TRUE(publisher.publish(made()).ok());
}

}  // namespace
}  // namespace deltawire::testing
