// Versions side by side: readers of the old one never see a byte of the new one.

#include "deltawire/replica.h"
#include "store/memory_store.h"
#include "support/test_chain.h"

namespace deltawire::testing {
namespace {

class CopyOnWriteTest : public ::testing::Test {
 protected:
  CopyOnWriteTest() : chain_(std::make_shared<MemoryStore>("cow")) {
    tensors_ = {make_tensor("a", DType::kBF16, {50, 20}, 1),
                make_tensor("b", DType::kF32, {300}, 2)};
    chain_.publish_full(tensors_, 2);
    for (uint64_t i = 0; i < 4; ++i) {
      change(&tensors_[0], 0.1, 10 + i);
      chain_.publish_delta(tensors_, "auto", 2);
    }
    options_.heartbeat = false;
    options_.copy_on_write = CopyOnWrite{.keep = 1};
  }
  fs::path local() const { return folder_.path() / "local"; }
  Result<PullReport> pull(std::optional<uint64_t> version = {}) {
    auto replica = Replica::open(chain_.store(), local(), options_);
    if (!replica.ok()) return replica.status();
    return replica->pull(version);
  }

  TempFolder folder_;
  TestChain chain_;
  std::vector<TestTensor> tensors_;
  ReplicaOptions options_;
};

TEST_F(CopyOnWriteTest, EveryVersionHasItsFolder) {
  for (uint64_t version = 0; version <= 4; ++version) {
    const auto report = must(pull(version));
    EXPECT_EQ(report.path, local() / ("v000000000" + std::to_string(version)));
    EXPECT_TRUE(is_identical(local() / "current", chain_.checkpoint(version)));
    EXPECT_EQ(fs::read_symlink(local() / "current"), report.path.filename());
    EXPECT_EQ(read_file(local() / "current/config.json"), "{}\n");
  }
  EXPECT_TRUE(is_identical(local() / "v0000000003", chain_.checkpoint(3)));
  EXPECT_FALSE(fs::exists(local() / "v0000000002"));
}

TEST_F(CopyOnWriteTest, AReaderKeepsWhatItOpened) {
  ASSERT_TRUE(pull(0).ok());
  const auto reader = must(Checkpoint::open(local() / "current"));
  const std::string before = as_string(reader.find("a")->view.bytes);
  ASSERT_TRUE(pull(1).ok());
  ASSERT_TRUE(pull(4).ok());
  EXPECT_FALSE(fs::exists(local() / "v0000000000"));
  EXPECT_EQ(as_string(reader.find("a")->view.bytes), before);
}

TEST_F(CopyOnWriteTest, PrepareLeavesTheLinkAlone) {
  auto replica = must(Replica::open(chain_.store(), local(), options_));
  ASSERT_TRUE(replica.pull(1).ok());
  ASSERT_TRUE(replica.prepare().ok());
  EXPECT_TRUE(is_identical(local() / "current", chain_.checkpoint(1)));
  ASSERT_TRUE(replica.commit().ok());
  EXPECT_TRUE(is_identical(local() / "current", chain_.checkpoint(4)));
}

TEST_F(CopyOnWriteTest, ADamagedVersionIsReplacedUnderItsName) {
  ASSERT_TRUE(pull().ok());
  std::ofstream(local() / "current/a-00001.safetensors") << "damage";
  const auto report = must(pull());
  EXPECT_TRUE(report.repaired);
  EXPECT_TRUE(is_identical(local() / "current", chain_.checkpoint(4)));
}

TEST_F(CopyOnWriteTest, GoesBackToAVersionThatIsStillThere) {
  ASSERT_TRUE(pull(3).ok());
  ASSERT_TRUE(pull(4).ok());
  must(pull(3));
  EXPECT_TRUE(is_identical(local() / "current", chain_.checkpoint(3)));
  EXPECT_EQ(fs::read_symlink(local() / "current"), "v0000000003");
}

TEST_F(CopyOnWriteTest, TensorsMayComeAndGo) {
  ASSERT_TRUE(pull().ok());
  tensors_.erase(tensors_.begin());
  tensors_.push_back(make_tensor("c", DType::kBF16, {70}, 9));
  chain_.publish_delta(tensors_, "auto", 2);
  const auto report = must(pull());
  EXPECT_FALSE(report.repaired);
  EXPECT_TRUE(is_identical(local() / "current", chain_.checkpoint(5)));
  EXPECT_TRUE(is_identical(local() / "v0000000004", chain_.checkpoint(4)));
}

}  // namespace
}  // namespace deltawire::testing
