// A store that held a run and holds nothing now: a disk that is not mounted, more likely than not.
#include <gtest/gtest.h>

#include "store/directory_store.h"
#include "support/published_model.h"

namespace deltawire {
namespace {

namespace fs = std::filesystem;
using testing::head_of;
using testing::holds;
using testing::is_failure;
using testing::Model;
using testing::TempFolder;

class LostStoreTest : public ::testing::Test {
 protected:
  TempFolder folder;
  const fs::path place = folder.path() / "store";
  std::shared_ptr<Store> store = std::make_shared<DirectoryStore>(place);
  Model model = Model::make();
  PublishOptions options;

  fs::path snapshot() const { return folder.path() / "snapshot"; }
  Result<Publisher> open(const fs::path& kept) {
    options.threads = 2;
    return Publisher::open(store, kept, options);
  }
  void publish(Publisher* publisher) {
    const auto report = publisher->publish(model.views());
    ASSERT_TRUE(report.ok()) << report.status().to_string();
    EXPECT_TRUE(holds(store, report->version, model));
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
    auto publisher = open(on_disk ? snapshot() : fs::path());
    ASSERT_TRUE(publisher.ok());
    publish(&*publisher);
    for (int i = 0; i < 2; ++i) {
      model.step();
      unmount();
      const auto failed = publisher->publish(model.views());
      EXPECT_TRUE(is_failure(failed.status(), Code::kNotFound, "holds no run any more", "mounted"));
      expect_nothing_committed();
      mount();
      publish(&*publisher);
    }
    fs::remove_all(place);
  }
}

TEST_F(LostStoreTest, AnotherRunInItsPlace) {
  auto publisher = open({});
  ASSERT_TRUE(publisher.ok());
  publish(&*publisher);
  unmount();
  auto other = open({});
  ASSERT_TRUE(other.ok());
  publish(&*other);
  model.step();
  const auto failed = publisher->publish(model.views());
  EXPECT_TRUE(is_failure(failed.status(), Code::kBaseMismatch, publisher->run(), other->run()));
  EXPECT_EQ(head_of(store), 0);
}

TEST_F(LostStoreTest, ARestartedPublisherWithItsSnapshot) {
  for (const bool per_run : {false, true}) {
    options = {};
    options.snapshot_per_run = per_run;
    {
      auto publisher = open(snapshot());
      ASSERT_TRUE(publisher.ok());
      publish(&*publisher);
    }
    unmount();
    const auto refused = open(snapshot());
    EXPECT_TRUE(
        is_failure(refused.status(), Code::kNotFound, snapshot().string(), "mounted", "--new-run"));
    expect_nothing_committed();
    mount();
    {
      auto publisher = open(snapshot());
      ASSERT_TRUE(publisher.ok()) << publisher.status().to_string();
      model.step();
      publish(&*publisher);
      EXPECT_EQ(head_of(store), 1);
    }
    fs::remove_all(place);
    options.new_run = true;
    {
      auto publisher = open(snapshot());
      ASSERT_TRUE(publisher.ok()) << publisher.status().to_string();
      publish(&*publisher);
      EXPECT_EQ(head_of(store), 0);
      model.step();
      publish(&*publisher);
    }
    options.new_run = false;
    EXPECT_TRUE(open(snapshot()).ok());
    fs::remove_all(place);
    fs::remove_all(snapshot());
  }
}

// Snapshots in one folder, a run each: those of other stores say nothing about this one.
TEST_F(LostStoreTest, AnotherStoreIsNew) {
  options.snapshot_per_run = true;
  {
    auto publisher = open(snapshot());
    ASSERT_TRUE(publisher.ok());
    publish(&*publisher);
  }
  store = std::make_shared<DirectoryStore>(folder.path() / "second");
  auto publisher = open(snapshot());
  ASSERT_TRUE(publisher.ok()) << publisher.status().to_string();
  publish(&*publisher);
}

TEST_F(LostStoreTest, WholeVersionsWithoutASnapshot) {
  options.full = true;
  options.snapshot_per_run = true;
  {
    auto publisher = open(snapshot());
    ASSERT_TRUE(publisher.ok());
    publish(&*publisher);
  }
  unmount();
  EXPECT_TRUE(is_failure(open(snapshot()).status(), Code::kNotFound, "mounted"));
}

}  // namespace
}  // namespace deltawire
