// Local files that another process cuts short while a replica works on them: mended or an error,
// never a fatal signal, and nothing is taken for a version that is not.

#include "deltawire/replica.h"
#include "replica/local_file.h"
#include "store/forwarding_store.h"
#include "store/memory_store.h"
#include "support/test_chain.h"

namespace deltawire::testing {
namespace {

// Calls `act` once, before a part is read.
class ActingStore final : public ForwardingStore {
 public:
  using ForwardingStore::ForwardingStore;
  Status download(std::string_view name, uint64_t size, Sink* sink) override {
    if (name.starts_with("parts/")) {
      const std::lock_guard lock(mutex_);
      if (auto act = std::exchange(act_, nullptr)) act();
    }
    return inner().download(name, size, sink);
  }
  std::function<void()> act_;

 private:
  std::mutex mutex_;
};

class ReplicaCutFilesTest : public ::testing::Test {
 protected:
  ReplicaCutFilesTest() : chain_(store_) {
    tensors_ = {make_tensor("a", DType::kBF16, {500, 64}, 1),
                make_tensor("z", DType::kBF16, {500, 64}, 3)};
    chain_.publish_full(tensors_);
    for (TestTensor& tensor : tensors_) change(&tensor, 0.1, 10);
    chain_.publish_delta(tensors_);
  }
  fs::path local() const { return folder_.path() / "local"; }
  fs::path weights() const { return local() / "model.safetensors"; }
  Result<Replica> open() {
    return Replica::open(store_, local(), {.limits = {.threads = 2}, .heartbeat = false});
  }
  void cut() { fs::resize_file(weights(), 2000); }
  // Whatever it was, the next pull makes it good.
  void expect_mended() {
    auto replica = must(open());
    must(replica.pull());
    EXPECT_EQ(read_replica_state(local())->version, 1);
    EXPECT_TRUE(is_identical(weights(), chain_.checkpoint(1) / "model.safetensors"));
  }

  TempFolder folder_;
  std::shared_ptr<ActingStore> store_ =
      std::make_shared<ActingStore>(std::make_shared<MemoryStore>());
  TestChain chain_;
  std::vector<TestTensor> tensors_;
};

TEST_F(ReplicaCutFilesTest, WhilePartsAreFetched) {
  {
    auto replica = open();
    ASSERT_TRUE(replica.ok() && replica->pull(0).ok());
    store_->act_ = [&] { cut(); };
    const auto report = replica->pull();
    EXPECT_TRUE(!report.ok() || is_identical(weights(), chain_.checkpoint(1)));
  }
  expect_mended();
}

TEST_F(ReplicaCutFilesTest, BetweenPrepareAndCommit) {
  {
    auto replica = open();
    ASSERT_TRUE(replica.ok() && replica->pull(0).ok());
    ASSERT_TRUE(replica->prepare().ok());
    cut();
    const auto report = replica->commit();
    EXPECT_TRUE(!report.ok() || is_identical(weights(), chain_.checkpoint(1)));
  }
  expect_mended();
}

TEST_F(ReplicaCutFilesTest, WhileItIsPatched) {
  auto replica = open();
  ASSERT_TRUE(replica.ok() && replica->pull(0).ok());
  auto file = must(PatchedFile::open(weights()));
  EXPECT_TRUE(file.check_whole().ok());
  cut();
  file.bytes()[file.bytes().size() - 1] = 7;
  EXPECT_FAILS(file.sync(), Code::kIo, weights().string(), "cut short");
}

}  // namespace
}  // namespace deltawire::testing
