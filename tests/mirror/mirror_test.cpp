#include "deltawire/mirror.h"

#include "chain/fsck.h"
#include "chain/heartbeat.h"
#include "chain/keys.h"
#include "chain/names.h"
#include "chain/retention.h"
#include "deltawire/maintain.h"
#include "deltawire/publisher.h"
#include "deltawire/replica.h"
#include "faults/faulty_store.h"
#include "store/memory_store.h"
#include "support/hooked_store.h"
#include "support/published_model.h"
#include "support/test_chain.h"

namespace deltawire::testing {
namespace {

using Numbers = std::vector<uint64_t>;

// The objects that a mirror copies: all but HEAD and those of readers and gc.
std::map<std::string, std::string> chain_objects(Store& store) {
  std::map<std::string, std::string> objects;
  for (const std::string& name : objects_of(store, "")) {
    if (name == kHeadName || name.starts_with(kReplicaPrefix) || name.starts_with(kPinPrefix) ||
        name.starts_with(kTrashPrefix)) {
      continue;
    }
    objects[name] = store.get(name, uint64_t{1} << 30).value();
  }
  return objects;
}

class MirrorTest : public ::testing::Test {
 protected:
  // Publishes `num` more versions.
  void publish(uint64_t num) {
    for (uint64_t i = 0; i < num; ++i) {
      if (published_ == 0) {
        source.publish_full(model.tensors);
      } else {
        model.step();
        source.publish_delta(model.tensors);
      }
      ++published_;
    }
  }

  Result<std::vector<Mirrored>> run(const std::shared_ptr<Store>& to, MirrorOptions options = {},
                                    std::shared_ptr<Store> from = nullptr) {
    options.work = work.path();
    DW_ASSIGN_OR_RETURN(const Chain chain,
                        Chain::open(from ? std::move(from) : store, Keys{.trust = trust}));
    DW_ASSIGN_OR_RETURN(Mirror mirror, Mirror::open(chain, to, std::move(options)));
    std::vector<Mirrored> all;
    while (true) {
      DW_ASSIGN_OR_RETURN(const std::optional<Mirrored> one, mirror.next());
      if (!one) return all;
      all.push_back(*one);
    }
  }
  Status status_of_run(const std::shared_ptr<Store>& to, MirrorOptions options = {}) {
    return run(to, std::move(options)).status();
  }

  Numbers versions(const std::shared_ptr<Store>& in) {
    return Chain::open(in, {}).value().versions().value();
  }
  ::testing::AssertionResult is_sound(const std::shared_ptr<Store>& in) {
    const auto report = fsck_chain(Chain::open(in, {}).value(), {});
    if (!report.ok()) return ::testing::AssertionFailure() << report.status().to_string();
    if (report->clean()) return ::testing::AssertionSuccess();
    return ::testing::AssertionFailure()
           << (report->problems.empty() ? report->warnings : report->problems).front();
  }
  // A pull from the mirror gives the published weights.
  ::testing::AssertionResult pulls(const std::shared_ptr<Store>& from, uint64_t version) {
    const TempFolder local;
    auto replica =
        Replica::open(from, local.path() / "ckpt", {.limits = {.threads = 1}, .heartbeat = false});
    if (!replica.ok()) return ::testing::AssertionFailure() << replica.status().to_string();
    PullGoal goal;
    goal.version = version;
    const auto pulled = replica->pull(goal);
    if (!pulled.ok()) return ::testing::AssertionFailure() << pulled.status().to_string();
    return testing::is_identical(pulled->path, source.checkpoint(version));
  }
  const std::string& part_of(uint64_t version) {
    return source.records[version].manifest.parts.front().name;
  }

  const MirrorOptions all{.all = true};
  TempFolder work;
  fs::path trust;
  std::shared_ptr<Store> store = std::make_shared<MemoryStore>();
  std::shared_ptr<Store> other = std::make_shared<MemoryStore>();
  TestChain source{store};
  Model model = Model::make();

 private:
  uint64_t published_ = 0;
};

TEST_F(MirrorTest, CopiesEverythingByteForByte) {
  publish(6);
  source.add_merged(0, 4);
  source.add_anchor(3);
  const auto copied = must(run(other, all));
  ASSERT_EQ(copied.size(), 8U);
  EXPECT_EQ(copied.at(0).version, 0U);
  EXPECT_EQ(copied.at(5).version, 5U);
  EXPECT_EQ(copied.at(6).kind, HopKind::kAnchor);
  EXPECT_EQ(copied.at(7).kind, HopKind::kMerged);
  EXPECT_EQ(chain_objects(*store), chain_objects(*other));
  EXPECT_TRUE(is_sound(other));
  for (uint64_t version = 0; version < 6; ++version) EXPECT_TRUE(pulls(other, version));
  // Nothing is copied twice.
  EXPECT_TRUE(run(other, all)->empty());
}

TEST_F(MirrorTest, StartsAtTheNewestAnchor) {
  publish(5);
  source.add_anchor(3);
  const auto copied = must(run(other));
  EXPECT_EQ(versions(other), (Numbers{3, 4}));
  EXPECT_TRUE(copied.front().begins);
  EXPECT_TRUE(pulls(other, 3));
  EXPECT_TRUE(pulls(other, 4));
  EXPECT_TRUE(is_sound(other));
  // A merged delta from a version that the mirror lacks is not copied.
  source.add_merged(1, 4);
  EXPECT_TRUE(run(other)->empty());
}

TEST_F(MirrorTest, StartsAtTheAnchorBeforeSince) {
  publish(8);
  source.add_anchor(2);
  source.add_anchor(6);
  MirrorOptions options{.since = 4};
  ASSERT_TRUE(status_of_run(other, options).ok());
  EXPECT_EQ(versions(other), (Numbers{2, 3, 4, 5, 6, 7}));
  EXPECT_TRUE(is_sound(other));
  options.since = 20;
  EXPECT_EQ(status_of_run(std::make_shared<MemoryStore>(), options).code(), Code::kNotFound);
}

TEST_F(MirrorTest, SinceSkipsDamagedVersions) {
  publish(3);
  ASSERT_TRUE(status_of_run(other).ok());
  publish(4);
  source.add_anchor(5);
  damage(*store, part_of(4));
  EXPECT_FAILS(status_of_run(other), kCorruption, part_of(4));
  EXPECT_EQ(versions(other), (Numbers{0, 1, 2, 3}));
  ASSERT_TRUE(status_of_run(other, {.since = 6}).ok());
  EXPECT_EQ(versions(other), (Numbers{0, 1, 2, 3, 5, 6}));
  EXPECT_TRUE(pulls(other, 6));
}

TEST_F(MirrorTest, MirrorOfAMirrorIsIdentical) {
  publish(4);
  source.add_anchor(2);
  const auto leaf = std::make_shared<MemoryStore>();
  ASSERT_TRUE(run(other, all).ok());
  ASSERT_TRUE(run(leaf, all, other).ok());
  EXPECT_EQ(chain_objects(*store), chain_objects(*leaf));
  publish(2);
  EXPECT_TRUE(run(leaf, all, other)->empty());
  ASSERT_TRUE(run(other, all).ok());
  ASSERT_TRUE(run(leaf, all, other).ok());
  EXPECT_EQ(chain_objects(*store), chain_objects(*leaf));
  EXPECT_TRUE(pulls(leaf, 5));
}

TEST_F(MirrorTest, RefusesAnotherRunBeforeWriting) {
  publish(2);
  TestChain stranger{other};
  stranger.publish_full(model.tensors);
  const auto before = objects_of(*other, "");
  EXPECT_EQ(status_of_run(other).code(), Code::kBaseMismatch);
  EXPECT_EQ(objects_of(*other, ""), before);
}

TEST_F(MirrorTest, RefusesToMirrorAStoreOntoItself) {
  publish(1);
  EXPECT_EQ(status_of_run(store).code(), Code::kInvalidArgument);
}

TEST_F(MirrorTest, RefusesATargetWithVersionsButNoRun) {
  publish(2);
  ASSERT_TRUE(status_of_run(other).ok());
  ASSERT_TRUE(other->remove(kRunName).ok());
  EXPECT_EQ(status_of_run(other).code(), Code::kCorruption);
}

TEST_F(MirrorTest, ReportsAMirrorAheadOfItsSource) {
  publish(4);
  ASSERT_TRUE(status_of_run(other).ok());
  const auto lost = source.lose_after(1);
  const auto before = chain_objects(*other);
  EXPECT_EQ(status_of_run(other).code(), Code::kNotFound);
  EXPECT_EQ(chain_objects(*other), before);
  source.put_back(lost);
  EXPECT_TRUE(run(other)->empty());
}

TEST_F(MirrorTest, ReportsAnotherHistory) {
  publish(4);
  ASSERT_TRUE(status_of_run(other).ok());
  source.lose_after(2);
  model.step();
  source.publish_delta(model.tensors);
  const auto before = chain_objects(*other);
  EXPECT_EQ(status_of_run(other).code(), Code::kBaseMismatch);
  model.step();
  source.publish_delta(model.tensors);
  EXPECT_EQ(status_of_run(other).code(), Code::kBaseMismatch);
  EXPECT_EQ(chain_objects(*other), before);
}

TEST_F(MirrorTest, DoesNotCopyDamagedObjects) {
  publish(3);
  damage(*store, part_of(1));
  EXPECT_FAILS(status_of_run(other), kCorruption, part_of(1));
  EXPECT_EQ(versions(other), (Numbers{0}));
  EXPECT_FALSE(other->stat(part_of(1)).ok());
  damage(*store, part_of(1));  // and back
  ASSERT_TRUE(status_of_run(other).ok());
  EXPECT_EQ(chain_objects(*store), chain_objects(*other));
}

TEST_F(MirrorTest, ReportsAMissingPart) {
  publish(3);
  ASSERT_TRUE(store->remove(part_of(2)).ok());
  EXPECT_FAILS(status_of_run(other), kNotFound, part_of(2));
  EXPECT_EQ(versions(other), (Numbers{0, 1}));
}

TEST_F(MirrorTest, SkipsADamagedHop) {
  publish(4);
  source.add_merged(0, 3);
  for (const std::string& name : objects_of(*store, kHopPrefix)) damage(*store, name);
  ASSERT_TRUE(status_of_run(other).ok());
  EXPECT_EQ(versions(other), (Numbers{0, 1, 2, 3}));
  EXPECT_TRUE(objects_of(*other, kHopPrefix).empty());
}

TEST_F(MirrorTest, RefusesAConflictingAnchorFirst) {
  publish(4);
  source.add_anchor(2);
  const std::vector<std::string> anchors = objects_of(*store, kHopPrefix);
  ASSERT_EQ(anchors.size(), 1u);
  ASSERT_TRUE(other->put(anchors[0], MemoryBody("{}")).ok());
  EXPECT_FAILS(status_of_run(other), kConflict, anchors[0] + ": differs from the source");
  EXPECT_EQ(versions(other), Numbers());
}

TEST_F(MirrorTest, VerifiesUnfinishedCopies) {
  publish(3);
  ASSERT_TRUE(status_of_run(other).ok());
  publish(2);
  // One part is complete, one was truncated, and one has the right size but other bytes.
  const PartRef whole = source.records[3].manifest.parts.front();
  const std::string bytes = store->get(whole.name, 1 << 30).value();
  ASSERT_TRUE(other->put(whole.name, MemoryBody(bytes.substr(1))).ok());
  ASSERT_TRUE(other->put(part_of(4), MemoryBody(store->get(part_of(4), 1 << 30).value())).ok());
  const auto copied = must(run(other));
  EXPECT_EQ(copied.at(0).num_there, 2U);  // the schema and config.json
  EXPECT_EQ(copied.at(1).num_there, 3U);
  EXPECT_EQ(chain_objects(*store), chain_objects(*other));
}

TEST_F(MirrorTest, RepairReplacesDamagedObjects) {
  publish(3);
  source.add_anchor(2);
  ASSERT_TRUE(status_of_run(other, all).ok());
  damage(*other, part_of(1));
  ASSERT_TRUE(other->remove(part_of(2)).ok());
  EXPECT_FALSE(is_sound(other));
  auto mirror = must(Mirror::open(source.chain, other, all));
  const auto repaired = must(mirror.repair());
  EXPECT_EQ(repaired.num_repaired, 2U);
  EXPECT_EQ(repaired.num_versions, 3U);
  EXPECT_EQ(repaired.num_hops, 1U);
  EXPECT_TRUE(is_sound(other));
  damage(*other, part_of(1));
  ASSERT_TRUE(store->remove(part_of(1)).ok());
  EXPECT_EQ(mirror.repair().status().code(), Code::kNotFound);
}

TEST_F(MirrorTest, RepairReplacesDamagedHopRecords) {
  publish(4);
  source.add_anchor(2);
  source.add_merged(0, 3);
  ASSERT_TRUE(status_of_run(other, all).ok());
  const auto whole = chain_objects(*other);
  const auto hops = objects_of(*other, kHopPrefix);
  ASSERT_EQ(hops.size(), 2U);
  for (const std::string& name : hops) damage(*other, name);
  auto mirror = must(Mirror::open(source.chain, other, all));
  const auto repaired = must(mirror.repair());
  EXPECT_EQ(repaired.num_repaired, 2U);
  EXPECT_EQ(repaired.num_hops, 2U);
  EXPECT_EQ(chain_objects(*other), whole);
  EXPECT_TRUE(is_sound(other));
  // If the source no longer has it, the damage is reported.
  damage(*other, hops[0]);
  ASSERT_TRUE(store->remove(hops[0]).ok());
  EXPECT_EQ(mirror.repair().status().code(), Code::kCorruption);
}

TEST_F(MirrorTest, RepairReplacesDamagedOrMissingManifests) {
  publish(6);
  ASSERT_TRUE(status_of_run(other, all).ok());
  const auto whole = chain_objects(*other);
  ASSERT_TRUE(other->put(manifest_name(5), MemoryBody("{")).ok());
  ASSERT_TRUE(other->put(manifest_name(3), MemoryBody("")).ok());
  ASSERT_TRUE(other->remove(manifest_name(1)).ok());
  ASSERT_TRUE(other->remove(manifest_name(2)).ok());
  ASSERT_TRUE(other->remove(part_of(2)).ok());
  auto mirror = must(Mirror::open(source.chain, other, all));
  const auto repaired = must(mirror.repair());
  EXPECT_EQ(repaired.num_repaired, 4U);
  EXPECT_EQ(repaired.num_versions, 6U);
  EXPECT_EQ(chain_objects(*other), whole);
  EXPECT_TRUE(is_sound(other));
  EXPECT_TRUE(pulls(other, 5));
}

TEST_F(MirrorTest, RepairDoesNotRestoreCollectedVersions) {
  publish(6);
  source.add_anchor(4);
  ASSERT_TRUE(status_of_run(other).ok());
  EXPECT_EQ(versions(other), (Numbers{4, 5}));
  auto mirror = must(Mirror::open(source.chain, other, {}));
  EXPECT_EQ(must(mirror.repair()).num_repaired, 0U);
  EXPECT_EQ(versions(other), (Numbers{4, 5}));
}

TEST_F(MirrorTest, AppliesItsOwnRetention) {
  publish(6);
  source.add_anchor(4);
  MirrorOptions options{.all = true};
  GcOptions keep{.keep = 1, .grace_seconds = 0};
  options.keep = keep;
  ASSERT_TRUE(status_of_run(other, options).ok());
  EXPECT_EQ(versions(other).size(), 6U);  // no anchor but the seed leads to them yet
  ASSERT_TRUE(status_of_run(other, options).ok());
  publish(2);
  ASSERT_TRUE(status_of_run(other, options).ok());
  EXPECT_EQ(versions(other), (Numbers{4, 5, 6, 7}));
  EXPECT_EQ(versions(store).size(), 8U);
  // Collected versions do not come back, nor do merged deltas from them.
  source.add_merged(1, 6);
  EXPECT_TRUE(run(other, options)->empty());
  EXPECT_EQ(versions(other), (Numbers{4, 5, 6, 7}));
  EXPECT_TRUE(is_sound(other));
  EXPECT_TRUE(pulls(other, 7));
}

TEST_F(MirrorTest, ContinuesAfterTheSourceWasPruned) {
  publish(3);
  ASSERT_TRUE(status_of_run(other).ok());
  publish(6);
  source.add_anchor(6);
  ASSERT_TRUE(source.chain.collect_garbage({.keep = 2, .grace_seconds = 0}).ok());
  ASSERT_EQ(versions(store), (Numbers{6, 7, 8}));
  EXPECT_TRUE(must(run(other)).front().begins);
  EXPECT_EQ(versions(other), (Numbers{0, 1, 2, 6, 7, 8}));
  EXPECT_TRUE(pulls(other, 8));
  EXPECT_TRUE(is_sound(other));
}

// The source's gc removes a version between its record and its parts.
TEST_F(MirrorTest, PlansAgainWhenTheSourceIsPrunedMeanwhile) {
  publish(6);
  source.add_anchor(4);
  const auto hooked = std::make_shared<HookedStore>(store);
  std::atomic<bool> pruned = false;
  hooked->before_get = [&](std::string_view name) -> Status {
    if (name == part_of(1) && !pruned.exchange(true)) {
      for (const uint64_t version : {0, 1, 2, 3}) {
        EXPECT_TRUE(store->remove(manifest_name(version)).ok());
        EXPECT_TRUE(store->remove(part_of(version)).ok());
      }
    }
    return {};
  };
  must(run(other, {.all = true}, hooked));
  EXPECT_TRUE(pruned);
  EXPECT_EQ(versions(other), (Numbers{0, 4, 5}));
  EXPECT_TRUE(pulls(other, 5));
}

// Two mirrors copy the same version at once, and one is faster.
TEST_F(MirrorTest, TwoWritersToOneMirrorGiveTheSameChain) {
  publish(4);
  const auto hooked = std::make_shared<HookedStore>(other);
  bool overtaken = false;
  hooked->before_put = [&](std::string_view name) -> Status {
    if (!overtaken && name == manifest_name(1)) {
      overtaken = true;
      EXPECT_TRUE(status_of_run(other).ok());
    }
    return {};
  };
  ASSERT_TRUE(status_of_run(hooked).ok());
  EXPECT_TRUE(overtaken);
  EXPECT_EQ(chain_objects(*store), chain_objects(*other));
}

TEST_F(MirrorTest, DetectsAPublisherInTheMirror) {
  publish(3);
  ASSERT_TRUE(status_of_run(other).ok());
  publish(2);
  const auto hooked = std::make_shared<HookedStore>(other);
  hooked->before_put = [&](std::string_view name) -> Status {
    if (name != manifest_name(3)) return {};
    const std::string text = store->get(manifest_name(2), 1 << 20).value();
    return other->put(name, MemoryBody(text));
  };
  EXPECT_EQ(status_of_run(hooked).code(), Code::kConflict);
}

TEST_F(MirrorTest, SurvivesEveryFault) {
  publish(5);
  source.add_anchor(3);
  source.add_merged(0, 4);
  MirrorOptions options{.all = true, .heartbeat = false};
  for (const char* spec : {"unavailable:p=0.05:seed=1", "unavailable:p=0.1:seed=2",
                           "duplicate:p=0.3:seed=4", "flip:p=0.03:seed=5", "twice:p=0.3:seed=6"}) {
    SCOPED_TRACE(spec);
    const auto to = std::make_shared<MemoryStore>();
    const auto parsed = must(parse_faults(spec));
    const auto near = std::make_shared<FaultyStore>(store, parsed);
    const auto far = std::make_shared<FaultyStore>(to, parsed);
    Status last = unavailable("not tried");
    bool same = false;  // a hop that seemed damaged is left out, for now
    for (int attempt = 0; attempt < 1000 && !same; ++attempt) {
      last = run(far, options, near).status();
      same = last.ok() && chain_objects(*to) == chain_objects(*store);
    }
    EXPECT_TRUE(last.ok()) << last.to_string();
    EXPECT_EQ(chain_objects(*to), chain_objects(*store));
    EXPECT_TRUE(is_sound(to));
  }
}

TEST_F(MirrorTest, WithoutConditionalPutNeedsSingleWriter) {
  publish(3);
  const auto hooked = std::make_shared<HookedStore>(other);
  hooked->can.put_if_absent = false;
  EXPECT_EQ(status_of_run(hooked).code(), Code::kUnsupported);
  ASSERT_TRUE(status_of_run(hooked, {.single_writer = true}).ok());
  EXPECT_EQ(chain_objects(*store), chain_objects(*other));
}

TEST_F(MirrorTest, SendsAHeartbeatToTheSource) {
  publish(2);
  ASSERT_TRUE(status_of_run(other, {.name = "eu"}).ok());
  const auto beats = must(source.chain.replicas());
  ASSERT_EQ(beats.size(), 1U);
  EXPECT_EQ(beats.front().heartbeat->name, "eu");
  EXPECT_EQ(beats.front().heartbeat->held, source.chain.version(1)->identity());
  EXPECT_TRUE(objects_of(*other, kReplicaPrefix).empty());
}

TEST_F(MirrorTest, RefusesASchemaWithAForeignName) {
  publish(1);
  source.tamper = [](Manifest* manifest) { manifest->schema.name = "run.json"; };
  model.step();
  source.publish_delta(model.tensors);
  const std::string run_text = store->get(kRunName, 1 << 16).value();
  EXPECT_EQ(status_of_run(other).code(), Code::kCorruption);
  EXPECT_EQ(other->get(kRunName, 1 << 16).value(), run_text);
  EXPECT_EQ(versions(other), (Numbers{0}));
}

TEST_F(MirrorTest, KeepsSignaturesAndRefusesUntrustedKeys) {
  const TempFolder keys;
  for (const char* name : {"mine", "other"}) ASSERT_TRUE(make_key_files(keys.path() / name).ok());
  const auto signed_store = std::make_shared<MemoryStore>();
  PublishOptions options{.keys = {.sign = keys.path() / "mine"}, .limits = {.threads = 1}};
  auto publisher = must(Publisher::open(signed_store, options));
  for (int i = 0; i < 3; ++i) {
    model.step();
    ASSERT_TRUE(publisher.publish(model.views()).ok());
  }
  trust = keys.path() / "other.pub";
  EXPECT_EQ(run(other, {}, signed_store).status().code(), Code::kCorruption);
  EXPECT_TRUE(objects_of(*other, kPartPrefix).empty());
  EXPECT_TRUE(objects_of(*other, kManifestPrefix).empty());
  trust = keys.path() / "mine.pub";
  ASSERT_TRUE(run(other, {.all = true}, signed_store).ok());
  EXPECT_EQ(chain_objects(*signed_store), chain_objects(*other));
  EXPECT_TRUE(Chain::open(other, {.trust = trust})->version(2).ok());
}

}  // namespace
}  // namespace deltawire::testing
