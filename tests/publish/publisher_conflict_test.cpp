// After a Conflict the same publisher goes on from the version of the one that was first.

#include "chain/names.h"
#include "support/hooked_store.h"
#include "support/published_model.h"

namespace deltawire::testing {
namespace {

// With the snapshot in memory, or in a folder.
class PublisherConflictTest : public ::testing::TestWithParam<bool> {
 protected:
  TempFolder folder;
  std::shared_ptr<HookedStore> store = std::make_shared<HookedStore>();
  Model model = Model::make();

  Publisher open(const std::string& snapshot, PublishOptions options = {}) {
    options.limits.threads = 1;
    if (GetParam()) options.snapshot = SnapshotInFolder{folder.path() / snapshot};
    return must(Publisher::open(store, std::move(options)));
  }
  void publishes(Publisher* publisher, uint64_t version, bool full = false) {
    const auto report = must(publisher->publish(model.views()));
    EXPECT_TRUE(report.committed);
    EXPECT_EQ(report.version, version);
    EXPECT_EQ(report.full, full);
    EXPECT_TRUE(holds(store, version, model));
  }
  // Once, `other` commits a step of its own just before the next manifest is put.
  void race_with(Publisher* other) {
    store->before_put = [this, other, once = true](std::string_view name) mutable -> Status {
      if (!name.starts_with(kManifestPrefix) || !once) return {};
      once = false;
      Model theirs = model;
      theirs.step();
      EXPECT_TRUE(other->publish(theirs.views()).ok());
      return {};
    };
  }
};

TEST_P(PublisherConflictTest, TheNextPublishCarriesEverything) {
  Publisher a = open("a");
  publishes(&a, 0, true);
  Publisher b = open("b");
  for (uint64_t version = 1; version < 7; version += 2) {
    model.step();
    publishes(&a, version);
    model.step();
    EXPECT_FAILS(b.publish(model.views()), Code::kConflict, "version " + std::to_string(version));
    publishes(&b, version + 1);
    EXPECT_FAILS(a.publish(model.views()), Code::kConflict,
                 "version " + std::to_string(version + 1));
  }
  // What the winner published is what this one holds: there is nothing left to say.
  EXPECT_FALSE(a.publish(model.views())->committed);
}

TEST_P(PublisherConflictTest, AlsoWhenTheCommitItselfComesTooLate) {
  Publisher a = open("a");
  publishes(&a, 0, true);
  Publisher b = open("b");
  model.step();
  race_with(&a);
  EXPECT_FAILS(b.publish(model.views()), Code::kConflict, "version 1");
  publishes(&b, 2);
}

TEST_P(PublisherConflictTest, AlsoForTheSeed) {
  Publisher a = open("a"), b = open("b");
  race_with(&a);
  EXPECT_FAILS(b.publish(model.views()), Code::kConflict, "version 0");
  publishes(&b, 1);
}

TEST_P(PublisherConflictTest, AlsoInTwoHalves) {
  Publisher a = open("a");
  publishes(&a, 0, true);
  Publisher b = open("b");
  model.step();
  ASSERT_TRUE(b.capture(model.views()).ok());
  publishes(&a, 1);
  EXPECT_FAILS(b.finish(), Code::kConflict, "version 1");
  model.step();
  ASSERT_TRUE(b.capture(model.views()).ok());
  const auto report = must(b.finish());
  EXPECT_EQ(report.version, 2);
  EXPECT_FALSE(report.full);
  EXPECT_TRUE(holds(store, 2, model));
  // Nothing of the attempts that lost is left.
  EXPECT_EQ(objects_of(*store, kPartPrefix).size(), 2);
}

TEST_P(PublisherConflictTest, AlsoWhereEveryVersionIsWhole) {
  PublishOptions options{.anchors = OnlyAnchors{}};
  Publisher a = open("a", options);
  publishes(&a, 0, true);
  Publisher b = open("b", options);
  model.step();
  publishes(&a, 1, true);
  model.step();
  EXPECT_FAILS(b.publish(model.views()), Code::kConflict, "version 1");
  publishes(&b, 2, true);
}

TEST_P(PublisherConflictTest, AnotherRunIsRefused) {
  Publisher publisher = open("a");
  publishes(&publisher, 0, true);
  const std::string run = publisher.run();
  model.step();
  store->before_put = [](std::string_view) { return io_error("gone"); };
  EXPECT_FALSE(publisher.publish(model.views()).ok());
  store->before_put = nullptr;
  for (const std::string& name : objects_of(*store, "")) ASSERT_TRUE(store->remove(name).ok());
  EXPECT_FAILS(publisher.publish(model.views()), Code::kNotFound, "holds no run any more", run);
  Publisher other = open("b");
  publishes(&other, 0, true);
  const auto refused = publisher.publish(model.views());
  EXPECT_FAILS(refused, Code::kBaseMismatch, run, other.run());
  EXPECT_FAILS(publisher.publish(model.views()), Code::kBaseMismatch) << "not only once";
  EXPECT_EQ(head_of(store), 0);
}

INSTANTIATE_TEST_SUITE_P(Snapshots, PublisherConflictTest, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "InAFolder" : "InMemory"; });

}  // namespace
}  // namespace deltawire::testing
