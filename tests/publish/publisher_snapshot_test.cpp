// A snapshot on disk: a restarted trainer continues from the committed version in every case.
#include "chain/names.h"

#include "deltawire/checkpoint.h"
#include "deltawire/replica.h"
#include "store/directory_store.h"
#include "support/hooked_store.h"
#include "support/published_model.h"

namespace deltawire::testing {
namespace {

class SnapshotTest : public ::testing::TestWithParam<bool> {
 protected:
  TempFolder folder;
  // A memory store stands for a remote one: parts are kept locally.
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
  // The objects read since count_gets().
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

TEST_P(SnapshotTest, FollowsTheChainWithoutDownloads) {
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

TEST_P(SnapshotTest, RestartedTrainerContinuesFromIt) {
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

TEST_P(SnapshotTest, HandlesAddedAndRemovedTensors) {
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

TEST_P(SnapshotTest, RebuildsAMissingOrStaleSnapshot) {
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
  // Another publisher with its own snapshot moves the chain forward.
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

TEST_P(SnapshotTest, DamagedOneIsRebuilt) {
  {
    auto publisher = open();
    publish(&*publisher);
  }
  // One bit flips, while the file's size and times stay the same.
  const fs::path file = snapshot() / "checkpoint" / "model.safetensors";
  const auto time = fs::last_write_time(file);
  overwrite(file, -1000, "\x55");
  fs::last_write_time(file, time);
  model.step(0.2);
  auto publisher = must(open());
  EXPECT_EQ(must(publisher.publish(model.views())).version, 1);
  EXPECT_TRUE(holds(store, 1, model));
}

TEST_P(SnapshotTest, RefusesASnapshotOfAnotherRun) {
  {
    auto publisher = open();
    publish(&*publisher);
  }
  store = std::make_shared<HookedStore>();
  auto other = Publisher::open(store);
  ASSERT_TRUE(other->publish(model.views()).ok());
  EXPECT_FAILS(open(), kBaseMismatch);
  // Unless every run has its own.
  per_run = true;
  EXPECT_TRUE(open().ok());
}

TEST_P(SnapshotTest, LocksOutASecondPublisher) {
  auto publisher = open();
  publish(&*publisher);
  EXPECT_FAILS(open(), kConflict);
}

// For any failed put in the second publish, the snapshot afterwards equals the chain's head.
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

// ---- A snapshot on disk that is advanced by overwriting it with the new tensors: no part is read,
// and if the tensors change meanwhile, no version is built on a wrong snapshot.

struct Size {
  const char* name;
  uint64_t scale;  // of the model
  uint64_t memory_bytes;
};

class OverwriteTest : public ::testing::TestWithParam<Size> {
 protected:
  TempFolder folder;
  std::shared_ptr<HookedStore> store = std::make_shared<HookedStore>();
  Model model = Model::make(GetParam().scale);
  bool parts_were_read = false;

  void SetUp() override {
    store->before_get = [this](std::string_view name) {
      if (name.starts_with(kPartPrefix)) parts_were_read = true;
      return Status();
    };
  }
  fs::path checkpoint() const { return folder.path() / "snapshot" / "checkpoint"; }
  Result<Publisher> open() {
    PublishOptions options{.snapshot = SnapshotInFolder{folder.path() / "snapshot", false},
                           .limits = {.threads = 2, .memory_bytes = GetParam().memory_bytes},
                           .schema_change = true};
    return Publisher::open(store, options);
  }
  static PublishReport publish(Publisher* publisher, const std::vector<PublishTensor>& tensors) {
    return must(publisher->publish(tensors));
  }
  void expect_snapshot(uint64_t version) const {
    const auto state = must(read_replica_state(checkpoint()));
    EXPECT_EQ(state.version, version);
    EXPECT_FALSE(state.patching_to);
    const auto held = must(Checkpoint::open(checkpoint()));
    for (const auto& tensor : model.tensors) {
      const CheckpointTensor* const found = held.find(tensor.name);
      ASSERT_NE(found, nullptr) << tensor.name;
      EXPECT_TRUE(std::equal(tensor.bytes.begin(), tensor.bytes.end(), found->view.bytes.begin(),
                             found->view.bytes.end()))
          << tensor.name;
    }
  }
  // Calls `act` once the version is committed and before the snapshot is advanced.
  void when_committed(const std::function<void()>& act) {
    store->after_put = [act, acted = false](std::string_view name) mutable {
      if (name.starts_with(kManifestPrefix) && !std::exchange(acted, true)) act();
      return Status();
    };
  }
};

TEST_P(OverwriteTest, AdvancesTheSnapshotAtAnyDensity) {
  auto publisher = open();
  ASSERT_TRUE(publisher.ok()) << publisher.status().to_string();
  publish(&*publisher, model.views());
  uint64_t version = 0;
  for (const double density : {0.0005, 0.02, 0.3}) {
    model.step(density);
    const PublishReport report = publish(&*publisher, model.views());
    EXPECT_EQ(report.version, ++version);
    EXPECT_TRUE(report.warnings.empty()) << report.warnings[0];
    expect_snapshot(version);
  }
  EXPECT_FALSE(parts_were_read);
  EXPECT_TRUE(holds(store, version, model));
  publisher = Status(Code::kNotFound, "closed");
  publisher = open();
  ASSERT_TRUE(publisher.ok()) << publisher.status().to_string();
  EXPECT_FALSE(publish(&*publisher, model.views()).committed);
}

// Then the snapshot differs from the chain, and equals the next publish.
TEST_P(OverwriteTest, DetectsTensorsThatChangeBeforeTheCopy) {
  auto publisher = open();
  publish(&*publisher, model.views());
  model.step();
  const Model committed = model;
  when_committed([&] { model.step(); });
  EXPECT_EQ(publish(&*publisher, model.views()).version, 1);
  EXPECT_TRUE(holds(store, 1, committed));
  const PublishReport report = publish(&*publisher, model.views());
  EXPECT_TRUE(report.committed);
  EXPECT_EQ(report.version, 2);
  ASSERT_EQ(report.warnings.size(), 1);
  EXPECT_TRUE(contains(report.warnings[0], "rebuilt"));
  EXPECT_TRUE(holds(store, 2, model));
  expect_snapshot(2);
}

// Like after a crash: state.json records a started patch, and there is no journal.
TEST_P(OverwriteTest, RebuildsAPartlyOverwrittenSnapshot) {
  auto publisher = open();
  publish(&*publisher, model.views());
  fs::path before = folder.path() / "before";
  model.step();
  when_committed([&] { fs::copy(checkpoint(), before, fs::copy_options::recursive); });
  publish(&*publisher, model.views());
  publisher = Status(Code::kNotFound, "closed");
  // Half of the file has the old version.
  const fs::path weights = checkpoint() / "model.safetensors";
  const std::string old = testing::read_file(before / "model.safetensors");
  overwrite(weights, int64_t(old.size() / 2), std::string_view(old).substr(old.size() / 2));
  std::string state = testing::read_file(before / ".deltawire" / "state.json");
  const size_t at = state.find("\"patching_to\"");
  if (at == std::string::npos) {
    state.insert(state.find('{') + 1, "\"patching_to\":1,");
  } else {
    state.replace(at, state.find_first_of(",}", at) - at, "\"patching_to\":1");
  }
  std::ofstream(checkpoint() / ".deltawire" / "state.json", std::ios::binary) << state;
  publisher = open();
  ASSERT_TRUE(publisher.ok()) << publisher.status().to_string();
  expect_snapshot(1);
  model.step();
  EXPECT_EQ(publish(&*publisher, model.views()).version, 2);
  EXPECT_TRUE(holds(store, 2, model));
}

TEST_P(OverwriteTest, OtherStepsAdvanceByPatches) {
  auto publisher = open();
  publish(&*publisher, model.views());
  // A new tensor.
  model.step();
  model.tensors.push_back(make_tensor("new", DType::kF32, {7, 9}, 3));
  publish(&*publisher, model.views());
  expect_snapshot(1);
  // Captured: the tensors change before the snapshot is advanced.
  model.step();
  ASSERT_TRUE(publisher->capture(model.views()).ok());
  const Model captured = model;
  model.step();
  ASSERT_TRUE(publisher->finish().ok());
  EXPECT_TRUE(holds(store, 2, captured));
  model.tensors = captured.tensors;
  expect_snapshot(2);
  // In boxes.
  model.step();
  std::vector<PublishTensor> views = model.views();
  PublishTensor half = views[1];
  half.box = {{0, 0}, {32, 100}};
  views[1].box = {{32, 0}, {32, 100}};
  half.view.bytes = views[1].view.bytes.first(32 * 100 * 2);
  views[1].view.bytes = views[1].view.bytes.subspan(32 * 100 * 2);
  views.push_back(half);
  EXPECT_TRUE(publish(&*publisher, views).warnings.empty());
  expect_snapshot(3);
  EXPECT_TRUE(holds(store, 3, model));
}

// A file was edited: this is detected before anything is built on it.
TEST_P(OverwriteTest, DoesNotOverwriteEditedFiles) {
  auto publisher = open();
  publish(&*publisher, model.views());
  model.step();
  when_committed([&] { overwrite(checkpoint() / "model.safetensors", -1, "\x55"); });
  publish(&*publisher, model.views());
  expect_snapshot(1);
  model.step();
  publish(&*publisher, model.views());
  EXPECT_TRUE(holds(store, 2, model));
}

INSTANTIATE_TEST_SUITE_P(Sizes, OverwriteTest,
                         ::testing::Values(Size{"Small", 1, uint64_t{2} << 30},
                                           Size{"Blocks", 60, uint64_t{2} << 30},
                                           Size{"Slices", 200, uint64_t{32} << 20}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace deltawire::testing
