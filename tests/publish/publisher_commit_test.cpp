// What a publisher removes and what it keeps when the store fails around the put of a manifest:
// parts that a stored manifest names are never deleted.
#include "base/process.h"
#include "chain/names.h"

#include "deltawire/publisher.h"
#include "support/hooked_store.h"
#include "support/published_model.h"

namespace deltawire::testing {
namespace {

constexpr Code kFailures[] = {Code::kUnavailable, Code::kIo,       Code::kCorruption,
                              Code::kNotFound,    Code::kInternal, Code::kConflict};

Model small_model() {
  Model model = Model::make();
  model.tensors.erase(model.tensors.begin(), model.tensors.begin() + 3);
  return model;
}

struct World {
  std::shared_ptr<MemoryStore> memory = std::make_shared<MemoryStore>();
  std::shared_ptr<HookedStore> store = std::make_shared<HookedStore>(memory);
  Model model = small_model();

  Publisher open() const { return open(store); }
  Publisher open(std::shared_ptr<Store> through) const {
    return std::move(Publisher::open(std::move(through),
                                     {.limits = {.threads = 1}, .single_writer = true}))
        .value();
  }
  // Whether every part named by a manifest in the store exists.
  ::testing::AssertionResult all_named_is_there() const {
    const Chain chain = Chain::open(memory, {}).value();
    for (const std::string& name : objects_of(*memory, kManifestPrefix)) {
      const auto record = chain.version(*version_of_manifest(name));
      if (!record.ok()) return ::testing::AssertionFailure() << record.status().to_string();
      for (const PartRef& part : record->manifest.parts) {
        if (!memory->stat(part.name).ok()) {
          return ::testing::AssertionFailure() << name << " names " << part.name << ": gone";
        }
      }
    }
    return ::testing::AssertionSuccess();
  }
};

// The outcome of the put of manifest 1.
enum class Put : uint8_t { kDone, kDoneAnswerLost, kDoneThenConflict, kNotDone };

// Publishes version 1 and fails the `fail_at`-th call after the put with `code`; if `built`,
// another publisher adds version 2 right after the put. Returns false if there were fewer calls.
bool publish_with_failure(Put put, bool built, bool conditional, size_t fail_at, Code code) {
  World world;
  world.store->can.put_if_absent = conditional;
  Publisher publisher = world.open();
  EXPECT_TRUE(publisher.publish(world.model.views()).ok());
  world.model.step(0.2);
  const Model mine = world.model;

  bool was_put = false, failed = false;
  size_t calls = 0;
  const Status lost(put == Put::kDoneThenConflict ? Code::kConflict : code, "the put's answer");
  world.store->after_put = [&](std::string_view name) -> Status {
    if (name != manifest_name(1)) return {};
    was_put = true;
    if (built) {
      Publisher other = world.open(world.memory);
      Model theirs = mine;
      theirs.step(0.2);
      EXPECT_TRUE(other.publish(theirs.views()).ok());
    }
    return put == Put::kDone ? Status() : lost;
  };
  world.store->before = [&](std::string_view call, std::string_view name) -> Status {
    if (put == Put::kNotDone && call.starts_with("put") && name == manifest_name(1)) {
      was_put = true;
      return lost;
    }
    if (!was_put || calls++ != fail_at) return {};
    failed = true;
    return Status(code, "told so");
  };
  const auto report = publisher.publish(mine.views());
  world.store->before = nullptr;
  world.store->after_put = nullptr;

  EXPECT_TRUE(world.all_named_is_there());
  const bool is_there = world.memory->stat(manifest_name(1)).ok();
  EXPECT_EQ(is_there, put != Put::kNotDone);
  if (report.ok()) {
    EXPECT_TRUE(is_there);
    EXPECT_EQ(report->version, 1);
  }
  if (is_there) {
    EXPECT_TRUE(holds(world.memory, 1, mine));
    if (!report.ok()) {
      EXPECT_TRUE(contains(report.status().message(), "may or may not"))
          << report.status().to_string();
    }
  }
  // The next publish determines the outcome.
  Publisher next = world.open();
  Model last = mine;
  last.step(0.2);
  last.step(0.2);
  const auto after = next.publish(last.views());
  EXPECT_TRUE(after.ok()) << after.status().to_string();
  if (after.ok()) {
    EXPECT_TRUE(holds(world.memory, after->version, last));
  }
  EXPECT_TRUE(world.all_named_is_there());
  return failed;
}

TEST(PublisherCommit, FailureAfterThePutKeepsNamedParts) {
  for (const bool conditional : {true, false}) {
    for (const Put put :
         {Put::kDone, Put::kDoneAnswerLost, Put::kDoneThenConflict, Put::kNotDone}) {
      for (const bool built : {false, true}) {
        if (built && put == Put::kNotDone) continue;
        if (!conditional && put == Put::kDoneThenConflict) continue;
        for (const Code code : kFailures) {
          if (!conditional && code != Code::kUnavailable && code != Code::kNotFound) continue;
          for (size_t fail_at = 0;; ++fail_at) {
            SCOPED_TRACE(std::string(code_name(code)) + ", put " + std::to_string(int(put)) +
                         (built ? ", built upon" : "") + (conditional ? "" : ", one writer") +
                         ", call " + std::to_string(fail_at));
            ASSERT_LT(fail_at, 50U);
            if (!publish_with_failure(put, built, conditional, fail_at, code)) break;
            if (::testing::Test::HasFailure()) return;
          }
        }
      }
    }
  }
}

// If another publisher's record has the number, ours was not stored, and the parts are removed. An
// unreadable record proves nothing.
TEST(PublisherCommit, OnlyAReadableForeignRecordProvesAConflict) {
  for (const bool readable : {true, false}) {
    World world;
    Publisher publisher = world.open(), other = world.open(world.memory);
    ASSERT_TRUE(publisher.publish(world.model.views()).ok());
    other = world.open(world.memory);
    world.model.step(0.2);
    std::vector<std::string> before;
    bool raced = false;
    world.store->before = [&](std::string_view call, std::string_view name) -> Status {
      if (name != manifest_name(1)) return {};
      if (call == "put_if_absent") {
        raced = true;
        Model theirs = world.model;
        theirs.step(0.2);
        before = objects_of(*world.memory, kPartPrefix);
        EXPECT_TRUE(other.publish(theirs.views()).ok());
      }
      return raced && call == "get" && !readable ? Status(Code::kCorruption, "flipped") : Status();
    };
    const auto report = publisher.publish(world.model.views());
    EXPECT_TRUE(world.all_named_is_there());
    bool left = false;
    for (const std::string& name : before) left = left || world.memory->stat(name).ok();
    ASSERT_FALSE(before.empty());
    if (readable) {
      EXPECT_FAILS(report, kConflict, "published by another");
    } else {
      EXPECT_FAILS(report, kCorruption, "may or may not");
    }
    EXPECT_EQ(left, !readable);
  }
}

// The number is free again after retention: the record is removed, and gc collects its parts.
TEST(PublisherCommit, LateCommitLeavesNoRecord) {
  World world;
  Publisher sleeper = world.open(), other = world.open(world.memory);
  ASSERT_TRUE(sleeper.publish(world.model.views()).ok());
  other = world.open(world.memory);
  Model theirs = world.model;
  world.model.step(0.2);
  bool slept = false;
  world.store->before = [&](std::string_view call, std::string_view name) -> Status {
    if (call != "put_if_absent" || name != manifest_name(1) || slept) return {};
    slept = true;
    for (int i = 0; i < 3; ++i) {
      theirs.step(0.2);
      EXPECT_TRUE(other.publish(theirs.views()).ok());
    }
    return world.memory->remove(manifest_name(1));
  };
  EXPECT_FAILS(sleeper.publish(world.model.views()), kConflict, "can no longer be committed",
               "version 3");
  EXPECT_FALSE(world.memory->stat(manifest_name(1)).ok());
  EXPECT_EQ(head_of(world.memory), 3);
}

// ---- After a Conflict the same publisher continues from the winner's version.

// The parameter: a snapshot in memory or in a folder.
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
  // Once, `other` commits its own step just before the next manifest is put.
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

TEST_P(PublisherConflictTest, NextPublishIsComplete) {
  Publisher a = open("a");
  publishes(&a, 0, true);
  Publisher b = open("b");
  for (uint64_t version = 1; version < 7; version += 2) {
    model.step();
    publishes(&a, version);
    const Model winner = model;
    model.step();
    EXPECT_FAILS(b.publish(model.views()), kConflict, "version " + std::to_string(version),
                 process_name());
    EXPECT_TRUE(holds(store, version, winner));
    publishes(&b, version + 1);
    EXPECT_FAILS(a.publish(model.views()), kConflict, "version " + std::to_string(version + 1));
  }
  // The winner published the state that this publisher has: nothing is left to publish.
  EXPECT_FALSE(a.publish(model.views())->committed);
}

TEST_P(PublisherConflictTest, LateConflictIsReportedToo) {
  Publisher a = open("a");
  publishes(&a, 0, true);
  Publisher b = open("b");
  model.step();
  race_with(&a);
  EXPECT_FAILS(b.publish(model.views()), kConflict, "version 1");
  publishes(&b, 2);
}

TEST_P(PublisherConflictTest, ConflictAtTheSeed) {
  Publisher a = open("a"), b = open("b");
  race_with(&a);
  EXPECT_FAILS(b.publish(model.views()), kConflict, "version 0");
  publishes(&b, 1);
}

TEST_P(PublisherConflictTest, ConflictBetweenCaptureAndFinish) {
  Publisher a = open("a");
  publishes(&a, 0, true);
  Publisher b = open("b");
  model.step();
  ASSERT_TRUE(b.capture(model.views()).ok());
  publishes(&a, 1);
  EXPECT_FAILS(b.finish(), kConflict, "version 1");
  model.step();
  ASSERT_TRUE(b.capture(model.views()).ok());
  const auto report = must(b.finish());
  EXPECT_EQ(report.version, 2);
  EXPECT_FALSE(report.full);
  EXPECT_TRUE(holds(store, 2, model));
  // Attempts that lost leave nothing behind.
  EXPECT_EQ(objects_of(*store, kPartPrefix).size(), 2);
}

TEST_P(PublisherConflictTest, ConflictWithFullVersionsOnly) {
  PublishOptions options{.anchors = OnlyAnchors{}};
  Publisher a = open("a", options);
  publishes(&a, 0, true);
  Publisher b = open("b", options);
  model.step();
  publishes(&a, 1, true);
  model.step();
  EXPECT_FAILS(b.publish(model.views()), kConflict, "version 1");
  publishes(&b, 2, true);
}

TEST_P(PublisherConflictTest, RefusesAnotherRun) {
  Publisher publisher = open("a");
  publishes(&publisher, 0, true);
  const std::string run = publisher.run();
  model.step();
  store->before_put = [](std::string_view) { return io_error("gone"); };
  EXPECT_FALSE(publisher.publish(model.views()).ok());
  store->before_put = nullptr;
  for (const std::string& name : objects_of(*store, "")) ASSERT_TRUE(store->remove(name).ok());
  EXPECT_FAILS(publisher.publish(model.views()), kNotFound, "holds no run any more", run);
  Publisher other = open("b");
  publishes(&other, 0, true);
  EXPECT_FAILS(publisher.publish(model.views()), kBaseMismatch, run, other.run());
  EXPECT_FAILS(publisher.publish(model.views()), kBaseMismatch) << "not only once";
  EXPECT_EQ(head_of(store), 0);
}

INSTANTIATE_TEST_SUITE_P(Snapshots, PublisherConflictTest, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "InAFolder" : "InMemory"; });

}  // namespace
}  // namespace deltawire::testing
