// A store that has lost its newest versions, or has others under their numbers.
#include "chain/names.h"

#include "deltawire/replica.h"
#include "store/directory_store.h"
#include "support/hooked_store.h"
#include "support/published_model.h"

namespace deltawire::testing {
namespace {

enum class Kind { kMemory, kFolder, kFolderOfAnchors };

class LostVersionsTest : public ::testing::TestWithParam<Kind> {
 protected:
  TempFolder folder;
  std::shared_ptr<HookedStore> store = std::make_shared<HookedStore>();
  Model model = Model::make();
  std::map<std::string, std::string> lost;
  Anchors anchors;

  bool in_folder() const { return GetParam() != Kind::kMemory; }
  bool only_anchors() const { return GetParam() == Kind::kFolderOfAnchors; }
  Result<Publisher> open(bool accept_loss = false) {
    PublishOptions options{.limits = {.threads = 1}, .accept_loss = accept_loss};
    if (in_folder()) {
      SnapshotInFolder place{folder.path() / "snapshot"};
      options.snapshot = place;
    }
    options.anchors = only_anchors() ? AnchorChoice(OnlyAnchors{}) : anchors;
    return Publisher::open(store, options);
  }
  Publisher opened(bool accept_loss = false) { return must(open(accept_loss)); }
  PublishReport publish(Publisher* publisher) {
    model.step();
    auto report = publisher->publish(model.views());
    EXPECT_TRUE(report.ok()) << report.status().to_string();
    if (!report.ok()) return {};
    EXPECT_TRUE(holds(store, report->version, model));
    return *report;
  }
  // Publishes versions 0 ... 3.
  Publisher publish_four() {
    Publisher publisher = opened();
    for (uint64_t version = 0; version < 4; ++version) {
      EXPECT_EQ(publish(&publisher).version, version);
    }
    return publisher;
  }
  void lose(uint64_t version) {
    const std::string name = manifest_name(version);
    lost[name] = *store->get(name, 1 << 20);
    ASSERT_TRUE(store->remove(name).ok());
  }
  void restore() {
    for (const auto& [name, text] : lost) ASSERT_TRUE(store->put(name, MemoryBody(text)).ok());
    lost.clear();
  }
  // Another publisher, unaware of the loss, continues from the remaining head.
  void publish_others(uint64_t last) {
    Result<Publisher> other = Publisher::open(store);
    Model theirs = model;
    for (uint64_t version = 0; version != last;) {
      theirs.step();
      version = other->publish(theirs.views())->version;
    }
  }
  void expect_refused(Publisher* publisher, const std::string& what) {
    const auto head = head_of(store);
    const auto objects = objects_of(*store, "");
    for (int i = 0; i < 2; ++i) {
      model.step();
      EXPECT_FAILS(publisher->publish(model.views()), kCorruption, what, "accept_loss");
    }
    EXPECT_EQ(head_of(store), head);
    EXPECT_EQ(objects_of(*store, ""), objects);
  }
};

TEST_P(LostVersionsTest, LivePublisherRefusesUntilTheyAreRestored) {
  Publisher publisher = publish_four();
  lose(3);
  expect_refused(&publisher, "lost version 3");
  lose(2);
  expect_refused(&publisher, "lost versions 2 to 3");
  restore();
  const PublishReport report = publish(&publisher);
  EXPECT_EQ(report.version, 4);
  EXPECT_EQ(report.full, only_anchors());
}

TEST_P(LostVersionsTest, RestartedPublisherRefusesUntilTheyAreRestored) {
  if (!in_folder()) return;  // a snapshot in memory ends with its process
  { publish_four(); }
  lose(3);
  for (int i = 0; i < 2; ++i) {
    EXPECT_FAILS(open(), kCorruption, "lost version 3", "newest is version 2", "accept_loss");
  }
  EXPECT_EQ(head_of(store), 2);
  restore();
  Publisher publisher = opened();
  EXPECT_EQ(publish(&publisher).version, 4);
}

TEST_P(LostVersionsTest, RefusesOtherVersionsWithTheirNumbers) {
  for (const uint64_t last : {3, 5}) {
    store = std::make_shared<HookedStore>();
    fs::remove_all(folder.path() / "snapshot");
    std::optional<Publisher> publisher = publish_four();
    lose(3);
    publish_others(last);
    model.step();
    // If the next number is taken, too, that is detected first.
    const auto failed = publisher->publish(model.views());
    EXPECT_TRUE(is_failure(failed, last == 3 ? Code::kCorruption : Code::kConflict, "version"));
    expect_refused(&*publisher, "holds another version 3");
    if (!in_folder()) continue;
    publisher.reset();
    EXPECT_FAILS(open(), kCorruption, "holds another version 3");
  }
}

// gc has removed the head of a publisher that was suspended: nothing was lost.
TEST_P(LostVersionsTest, PrunedVersionsAreNotLost) {
  std::optional<Publisher> publisher = publish_four();
  publish_others(6);
  for (const uint64_t version : {0, 1, 2, 3, 4}) lose(version);
  model.step();
  EXPECT_FAILS(publisher->publish(model.views()), kConflict, "version 6");
}

TEST_P(LostVersionsTest, AcceptedLossIsReplacedByAFullVersion) {
  std::optional<Publisher> publisher = publish_four();
  const auto replica_at = [&](const char* name) {
    return Replica::open(store, folder.path() / name, {.heartbeat = false});
  };
  ASSERT_TRUE(replica_at("held")->pull().ok());
  lose(3);
  expect_refused(&*publisher, "lost version 3");
  publisher.reset();
  publisher = opened(true);
  PublishReport report = publish(&*publisher);
  EXPECT_EQ(report.version, 3);
  EXPECT_TRUE(report.full);
  EXPECT_EQ(report.reason, in_folder() ? "the store lost version 3" : "accept_loss");
  // A replica that holds the lost version gets an error; others are not affected.
  EXPECT_FAILS(replica_at("held")->pull(), kCorruption, "chain was rewritten");
  EXPECT_TRUE(replica_at("late")->pull().ok());
  // A publisher that was killed before the answer publishes the same again: nothing changed.
  publisher.reset();
  publisher = opened(true);
  EXPECT_FALSE(publisher->publish(model.views())->committed);
  publisher.reset();
  publisher = opened();
  // From here on everything is as usual, for this publisher and the next.
  report = publish(&*publisher);
  EXPECT_EQ(report.version, 4);
  EXPECT_EQ(report.full, only_anchors());
  lost.clear();
  lose(4);
  expect_refused(&*publisher, "lost version 4");
  restore();
  publisher.reset();
  publisher = opened();
  EXPECT_EQ(publish(&*publisher).version, 5);
}

TEST_P(LostVersionsTest, AcceptsTheLossOfAllVersions) {
  { publish_four(); }
  for (const uint64_t version : {0, 1, 2, 3}) lose(version);
  if (in_folder()) {
    EXPECT_FAILS(open(), kCorruption, "lost versions 0 to 3");
  }
  Publisher publisher = opened(true);
  const PublishReport report = publish(&publisher);
  EXPECT_EQ(report.version, 0);
  EXPECT_EQ(report.reason, in_folder() ? "the store lost versions 0 to 3" : "seed");
  EXPECT_EQ(publish(&publisher).version, 1);
}

// Anchors and merged deltas to a lost version do not lead to its replacement.
TEST_P(LostVersionsTest, AcceptedLossRemovesItsAnchors) {
  anchors.every = 1;
  { publish_four(); }
  lose(3);
  Publisher publisher = opened(true);
  EXPECT_EQ(publish(&publisher).version, 3);
  const std::vector<AddedHop> hops = *Chain::open(store, {})->added_hops(0, 9);
  ASSERT_EQ(hops.size(), only_anchors() ? 0 : 2);
  for (size_t i = 0; i < hops.size(); ++i) EXPECT_EQ(hops[i].version, i + 1);
}

// Even if the rest of the chain is unreadable.
TEST_P(LostVersionsTest, AcceptedLossNeedsNoOldVersions) {
  { publish_four(); }
  lose(3);
  for (const std::string_view prefix : {"parts/", "full/"}) {
    for (const std::string& name : objects_of(*store, prefix)) {
      ASSERT_TRUE(store->remove(name).ok());
    }
  }
  Publisher publisher = opened(true);
  EXPECT_EQ(publish(&publisher).version, 3);
  EXPECT_EQ(publish(&publisher).version, 4);
}

// A publisher that is killed after accepting the loss, before replacing it, has accepted it.
TEST_P(LostVersionsTest, AcceptedLossIsRemembered) {
  { publish_four(); }
  lose(3);
  EXPECT_TRUE(open(true).ok());
  Publisher publisher = opened();
  EXPECT_EQ(publish(&publisher).version, 3);
}

INSTANTIATE_TEST_SUITE_P(Snapshots, LostVersionsTest,
                         ::testing::Values(Kind::kMemory, Kind::kFolder, Kind::kFolderOfAnchors));

// ---- A store that held a run and is empty now: most likely a disk that is not mounted.

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
    EXPECT_TRUE(holds(store, must(publisher->publish(model.views())).version, model));
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

TEST_F(LostStoreTest, LivePublisherRefusesAnEmptyStore) {
  for (const bool on_disk : {false, true}) {
    auto publisher = must(open(on_disk ? std::optional(snapshot()) : std::nullopt));
    publish(&publisher);
    for (int i = 0; i < 2; ++i) {
      model.step();
      unmount();
      const auto failed = publisher.publish(model.views());
      EXPECT_FAILS(failed, kNotFound, "holds no run any more", "mounted");
      expect_nothing_committed();
      mount();
      publish(&publisher);
    }
    fs::remove_all(place);
  }
}

TEST_F(LostStoreTest, RefusesAnotherRunInItsPlace) {
  auto publisher = must(open({}));
  publish(&publisher);
  unmount();
  auto other = must(open({}));
  publish(&other);
  model.step();
  EXPECT_FAILS(publisher.publish(model.views()), kBaseMismatch, publisher.run(), other.run());
  EXPECT_EQ(head_of(store), 0);
}

TEST_F(LostStoreTest, RestartedPublisherRefusesAnEmptyStore) {
  for (const bool per_run : {false, true}) {
    options = {};
    const SnapshotInFolder kept = snapshot(per_run);
    {
      auto publisher = must(open(kept));
      publish(&publisher);
    }
    unmount();
    EXPECT_FAILS(open(kept), kNotFound, kept.folder.string(), "mounted", "new_run");
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

// With one snapshot folder per run, snapshots of other stores do not matter.
TEST_F(LostStoreTest, SnapshotsOfOtherStoresAreIgnored) {
  {
    auto publisher = must(open(snapshot(true)));
    publish(&publisher);
  }
  store = std::make_shared<DirectoryStore>(folder.path() / "second");
  auto publisher = must(open(snapshot(true)));
  publish(&publisher);
}

TEST_F(LostStoreTest, RefusesAnEmptyStoreWithFullVersionsOnly) {
  options.anchors = OnlyAnchors{};
  {
    auto publisher = must(open(snapshot(true)));
    publish(&publisher);
  }
  unmount();
  EXPECT_FAILS(open(snapshot(true)), kNotFound, "mounted");
}

}  // namespace
}  // namespace deltawire::testing
