// What a publisher takes back and what it leaves when the store fails around the put of a manifest:
// parts that a manifest in the store names are never deleted.

#include "chain/names.h"
#include "deltawire/publisher.h"
#include "store/forwarding_store.h"
#include "store/memory_store.h"
#include "support/published_model.h"

namespace deltawire::testing {
namespace {

// Asks before each call, and after each put that was done.
class ScriptedStore final : public ForwardingStore {
 public:
  using ForwardingStore::ForwardingStore;
  std::function<Status(std::string_view call, std::string_view name)> before;
  std::function<Status(std::string_view name)> after_put;
  Capabilities can;

  Result<Capabilities> capabilities() override { return can; }
  Status put(std::string_view name, const Body& body) override {
    DW_RETURN_IF_ERROR(ask("put", name));
    DW_RETURN_IF_ERROR(inner().put(name, body));
    return after_put ? after_put(name) : Status();
  }
  Status put_if_absent(std::string_view name, const Body& body) override {
    DW_RETURN_IF_ERROR(ask("put_if_absent", name));
    DW_RETURN_IF_ERROR(inner().put_if_absent(name, body));
    return after_put ? after_put(name) : Status();
  }
  Result<ObjectInfo> stat(std::string_view name) override {
    DW_RETURN_IF_ERROR(ask("stat", name));
    return inner().stat(name);
  }
  Result<std::string> get(std::string_view name, uint64_t max_bytes) override {
    DW_RETURN_IF_ERROR(ask("get", name));
    return inner().get(name, max_bytes);
  }
  Result<std::vector<ObjectInfo>> list(std::string_view prefix, std::string_view after,
                                       size_t limit) override {
    DW_RETURN_IF_ERROR(ask("list", prefix));
    return inner().list(prefix, after, limit);
  }
  Status remove(std::string_view name) override {
    DW_RETURN_IF_ERROR(ask("remove", name));
    return inner().remove(name);
  }

 private:
  Status ask(std::string_view call, std::string_view name) const {
    return before ? before(call, name) : Status();
  }
};

constexpr Code kFailures[] = {Code::kUnavailable, Code::kIo,       Code::kCorruption,
                              Code::kNotFound,    Code::kInternal, Code::kConflict};

Model small_model() {
  Model model = Model::make();
  model.tensors.erase(model.tensors.begin(), model.tensors.begin() + 3);
  return model;
}

struct World {
  std::shared_ptr<MemoryStore> memory = std::make_shared<MemoryStore>();
  std::shared_ptr<ScriptedStore> store = std::make_shared<ScriptedStore>(memory);
  Model model = small_model();

  Publisher open() const { return open(store); }
  Publisher open(std::shared_ptr<Store> through) const {
    return std::move(Publisher::open(std::move(through),
                                     {.limits = {.threads = 1}, .single_writer = true}))
        .value();
  }
  // Whatever the store's manifests name is there.
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

// What happens to the put of manifest 1 itself.
enum class Put : uint8_t { kDone, kDoneAnswerLost, kDoneThenConflict, kNotDone };

// Publishes version 1 with the `fail_at`-th call after the put failing with `code`; another
// publisher builds version 2 upon it right after the put if `built`. False when there were fewer
// calls.
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
  // The next publish finds out.
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

TEST(PublisherCommit, NoFailureAfterThePutDeletesWhatTheManifestNames) {
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

// Another's record where ours was to be: ours is certainly not there, and what it would have named
// goes. A record that cannot be read proves nothing.
TEST(PublisherCommit, OnlyASoundRecordOfAnotherProvesAConflict) {
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
      EXPECT_FAILS(report, Code::kConflict, "published by another");
    } else {
      EXPECT_FAILS(report, Code::kCorruption, "may or may not");
    }
    EXPECT_EQ(left, !readable);
  }
}

// The number is free again after retention: the record goes, its parts wait for gc.
TEST(PublisherCommit, WhatComesTooLateLeavesNoRecord) {
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
  EXPECT_FAILS(sleeper.publish(world.model.views()), Code::kConflict, "too late", "version 3");
  EXPECT_FALSE(world.memory->stat(manifest_name(1)).ok());
  EXPECT_EQ(head_of(world.memory), 3);
}

}  // namespace
}  // namespace deltawire::testing
