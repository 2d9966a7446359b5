// A snapshot on disk: a restarted trainer goes on from what was committed, whatever happened.

#include "chain/names.h"
#include "deltawire/replica.h"
#include "store/directory_store.h"
#include "support/hooked_store.h"
#include "support/published_model.h"

namespace deltawire::testing {
namespace {

class SnapshotTest : public ::testing::TestWithParam<bool> {
 protected:
  TempFolder folder;
  // A store in memory stands for a remote one: parts are kept at hand.
  std::shared_ptr<HookedStore> store = std::make_shared<HookedStore>(
      GetParam() ? std::shared_ptr<Store>(std::make_shared<DirectoryStore>(folder.path() / "store"))
                 : std::make_shared<MemoryStore>());
  Model model = Model::make();
  PublishOptions options = testing::with_schema_change();
  bool per_run = false;

  fs::path snapshot() const { return folder.path() / "snapshot"; }
  Result<Publisher> open() {
    options.limits.threads = 2;
    options.snapshot = SnapshotInFolder{snapshot(), per_run};
    return Publisher::open(store, options);
  }
  PublishReport publish(Publisher* publisher) {
    auto report = must(publisher->publish(model.views()));
    for (const std::string& warning : report.warnings) ADD_FAILURE() << warning;
    return report;
  }
  // What the store was asked for since.
  std::vector<std::string> gets;
  void count_gets() {
    gets.clear();
    store->before_get = [this](std::string_view name) {
      const std::lock_guard lock(mutex_);
      gets.emplace_back(name);
      return Status();
    };
  }
  size_t num_gets(std::string_view prefix) const {
    return size_t(std::count_if(gets.begin(), gets.end(),
                                [&](const std::string& name) { return name.starts_with(prefix); }));
  }

 private:
  std::mutex mutex_;
};

TEST_P(SnapshotTest, FollowsTheChainWithoutFetchingWhatItPublished) {
  auto publisher = must(open());
  count_gets();
  for (uint64_t version = 0; version <= 3; ++version) {
    EXPECT_EQ(publish(&publisher).version, version);
    EXPECT_TRUE(read_replica_state(snapshot() / "checkpoint")->version == version);
    EXPECT_FALSE(fs::exists(snapshot() / "parts"));
    model.step();
  }
  if (!GetParam()) {
    EXPECT_EQ(num_gets(kFullPrefix), 0);
    EXPECT_EQ(num_gets(kPartPrefix), 0);
  }
}

TEST_P(SnapshotTest, ARestartedTrainerGoesOnFromIt) {
  {
    auto publisher = open();
    publish(&*publisher);
    model.step();
    publish(&*publisher);
  }
  count_gets();
  auto publisher = must(open());
  EXPECT_FALSE(publish(&publisher).committed);
  model.step();
  EXPECT_EQ(publish(&publisher).version, 2);
  if (!GetParam()) {
    EXPECT_EQ(num_gets(kFullPrefix), 0);
  }
  EXPECT_TRUE(holds(store, 2, model));
}

TEST_P(SnapshotTest, TensorsComeAndGo) {
  auto publisher = open();
  publish(&*publisher);
  model.tensors.erase(model.tensors.begin());
  model.tensors.push_back(make_tensor("new", DType::kF32, {7, 9}, 3));
  publish(&*publisher);
  model.step();
  publish(&*publisher);
  EXPECT_TRUE(holds(store, 2, model));
  publisher = Status(Code::kNotFound, "closed");  // releases the snapshot
  publisher = open();
  ASSERT_TRUE(publisher.ok()) << publisher.status().to_string();
  EXPECT_FALSE(publish(&*publisher).committed);
}

TEST_P(SnapshotTest, MissingOrStaleItIsMadeFromTheChain) {
  {
    auto publisher = open();
    publish(&*publisher);
    model.step();
    publish(&*publisher);
  }
  fs::remove_all(snapshot());
  auto publisher = open();
  ASSERT_TRUE(publisher.ok()) << publisher.status().to_string();
  EXPECT_FALSE(publish(&*publisher).committed);
  // Another publisher, with a snapshot of its own, moves the chain on.
  auto other = Publisher::open(store);
  model.step();
  ASSERT_TRUE(other->publish(model.views()).ok());
  publisher = Status(Code::kNotFound, "closed");  // releases the snapshot
  publisher = open();
  ASSERT_TRUE(publisher.ok()) << publisher.status().to_string();
  model.step();
  EXPECT_EQ(publish(&*publisher).version, 3);
  EXPECT_TRUE(holds(store, 3, model));
}

TEST_P(SnapshotTest, DamagedItIsMadeAnew) {
  {
    auto publisher = open();
    publish(&*publisher);
  }
  // One bit, with the file's size and times as they were.
  const fs::path file = snapshot() / "checkpoint" / "model.safetensors";
  const auto time = fs::last_write_time(file);
  {
    std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
    stream.seekp(ptrdiff_t(fs::file_size(file)) - 1000);
    stream.put('\x55');
  }
  fs::last_write_time(file, time);
  model.step(0.2);
  auto publisher = must(open());
  const auto report = must(publisher.publish(model.views()));
  EXPECT_EQ(report.version, 1);
  EXPECT_TRUE(holds(store, 1, model));
}

TEST_P(SnapshotTest, OfAnotherRunItIsRefused) {
  {
    auto publisher = open();
    publish(&*publisher);
  }
  store = std::make_shared<HookedStore>();
  auto other = Publisher::open(store);
  ASSERT_TRUE(other->publish(model.views()).ok());
  EXPECT_FAILS(open(), Code::kBaseMismatch);
  // Unless every run has its own.
  per_run = true;
  EXPECT_TRUE(open().ok());
}

TEST_P(SnapshotTest, OnePublisherAtATime) {
  auto publisher = open();
  publish(&*publisher);
  EXPECT_FAILS(open(), Code::kConflict);
}

// Whatever put fails in the second publish, what is on disk afterwards is what the chain holds.
TEST_P(SnapshotTest, AfterAnyFailedPutItIsStillTheHead) {
  for (int fail_at = 0;; ++fail_at) {
    ASSERT_LT(fail_at, 100);
    fs::remove_all(folder.path() / "store");
    fs::remove_all(snapshot());
    store = std::make_shared<HookedStore>(
        GetParam()
            ? std::shared_ptr<Store>(std::make_shared<DirectoryStore>(folder.path() / "store"))
            : std::make_shared<MemoryStore>());
    model = Model::make();
    options.part_bytes = 1000;
    options.anchors = Anchors{.every = 1};
    auto publisher = open();
    publish(&*publisher);
    model.step();
    std::atomic<int> puts{0};
    bool reached = false;
    store->before_put = [&](std::string_view) {
      const bool now = puts++ == fail_at;
      reached = reached || now;
      return now ? io_error("no space") : Status();
    };
    const auto failed = publisher->publish(model.views());
    store->before_put = nullptr;
    EXPECT_EQ(head_of(store), failed.ok() ? 1 : 0);
    publisher = Status(Code::kNotFound, "closed");
    publisher = open();  // a restart
    ASSERT_TRUE(publisher.ok()) << publisher.status().to_string();
    model.step();
    const uint64_t version = publish(&*publisher).version;
    EXPECT_EQ(version, failed.ok() ? 2 : 1);
    EXPECT_TRUE(holds(store, version, model));
    if (!reached) break;
  }
}

INSTANTIATE_TEST_SUITE_P(Stores, SnapshotTest, ::testing::Values(false, true),
                         [](const auto& info) { return info.param ? "Directory" : "Remote"; });

}  // namespace
}  // namespace deltawire::testing
