// A store that held a run and holds nothing now: a disk that is not mounted, more likely than not.

#include "store/directory_store.h"
#include "support/published_model.h"

namespace deltawire::testing {
namespace {

class LostStoreTest : public ::testing::Test {
 protected:
  TempFolder folder;
  const fs::path place = folder.path() / "store";
  std::shared_ptr<Store> store = std::make_shared<DirectoryStore>(place);
  Model model = Model::make();
  PublishOptions options;

  SnapshotInFolder snapshot(bool per_run = false) const {
    return {folder.path() / "snapshot", per_run};
  }
  // With a snapshot in `kept`, or in memory.
  Result<Publisher> open(const std::optional<SnapshotInFolder>& kept) {
    options.limits.threads = 2;
    options.snapshot = kept ? SnapshotPlace(*kept) : SnapshotPlace();
    return Publisher::open(store, options);
  }
  void publish(Publisher* publisher) {
    const auto report = must(publisher->publish(model.views()));
    EXPECT_TRUE(holds(store, report.version, model));
  }
  void unmount() {
    fs::rename(place, folder.path() / "away");
    fs::create_directories(place);
  }
  void mount() {
    fs::remove_all(place);
    fs::rename(folder.path() / "away", place);
  }
  void expect_nothing_committed() {
    EXPECT_FALSE(fs::exists(place / "run.json"));
    EXPECT_FALSE(fs::exists(place / "manifests"));
  }
};

TEST_F(LostStoreTest, APublisherThatPublishedThere) {
  for (const bool on_disk : {false, true}) {
    auto publisher = must(open(on_disk ? std::optional(snapshot()) : std::nullopt));
    publish(&publisher);
    for (int i = 0; i < 2; ++i) {
      model.step();
      unmount();
      const auto failed = publisher.publish(model.views());
      EXPECT_FAILS(failed, Code::kNotFound, "holds no run any more", "mounted");
      expect_nothing_committed();
      mount();
      publish(&publisher);
    }
    fs::remove_all(place);
  }
}

TEST_F(LostStoreTest, AnotherRunInItsPlace) {
  auto publisher = must(open({}));
  publish(&publisher);
  unmount();
  auto other = must(open({}));
  publish(&other);
  model.step();
  const auto failed = publisher.publish(model.views());
  EXPECT_FAILS(failed, Code::kBaseMismatch, publisher.run(), other.run());
  EXPECT_EQ(head_of(store), 0);
}

TEST_F(LostStoreTest, ARestartedPublisherWithItsSnapshot) {
  for (const bool per_run : {false, true}) {
    options = {};
    const SnapshotInFolder kept = snapshot(per_run);
    {
      auto publisher = must(open(kept));
      publish(&publisher);
    }
    unmount();
    const auto refused = open(kept);
    EXPECT_FAILS(refused, Code::kNotFound, kept.folder.string(), "mounted", "new_run");
    expect_nothing_committed();
    mount();
    {
      auto publisher = must(open(kept));
      model.step();
      publish(&publisher);
      EXPECT_EQ(head_of(store), 1);
    }
    fs::remove_all(place);
    options.new_run = true;
    {
      auto publisher = must(open(kept));
      publish(&publisher);
      EXPECT_EQ(head_of(store), 0);
      model.step();
      publish(&publisher);
    }
    options.new_run = false;
    EXPECT_TRUE(open(kept).ok());
    fs::remove_all(place);
    fs::remove_all(kept.folder);
  }
}

// Snapshots in one folder, a run each: those of other stores say nothing about this one.
TEST_F(LostStoreTest, AnotherStoreIsNew) {
  {
    auto publisher = must(open(snapshot(true)));
    publish(&publisher);
  }
  store = std::make_shared<DirectoryStore>(folder.path() / "second");
  auto publisher = must(open(snapshot(true)));
  publish(&publisher);
}

TEST_F(LostStoreTest, WholeVersionsWithoutASnapshot) {
  options.anchors = OnlyAnchors{};
  {
    auto publisher = must(open(snapshot(true)));
    publish(&publisher);
  }
  unmount();
  EXPECT_FAILS(open(snapshot(true)), Code::kNotFound, "mounted");
}

}  // namespace
}  // namespace deltawire::testing
