
#include <chrono>

#include "chain/fsck.h"
#include "chain/heartbeat.h"
#include "chain/retention.h"
#include "store/directory_store.h"
#include "store/forwarding_store.h"
#include "support/test_chain.h"
#include "test_files.h"

namespace deltawire::testing {
namespace {

constexpr int64_t kGrace = 3600;

// Twenty versions; full states at 0, 6, 11 (anchor) and 15 (anchor); merged deltas between them.
void fill(TestChain& real, int versions = 20) {
  for (int v = 0; v < versions; ++v) {
    real.publish_step(v == 6);
    if (v == 11 || v == 15) real.add_anchor(uint64_t(v));
    if (v != 0 && v % 4 == 0) real.add_merged(uint64_t(v) - 4, uint64_t(v));
  }
}

// `now` is the store's clock.
GcReport collect(const TestChain& real, uint64_t keep, int64_t now, bool dry_run = false) {
  real.memory->set_clock(now);
  return must(real.chain.collect_garbage({keep, kGrace, dry_run}));
}

size_t num_objects(Store& store, std::string_view prefix) {
  return objects_of(store, prefix).size();
}

std::set<uint64_t> versions_of(const TestChain& real) {
  return list_names(real.chain).value().versions;
}

std::set<uint64_t> numbers(uint64_t first, uint64_t last) {
  std::set<uint64_t> set;
  for (uint64_t v = first; v <= last; ++v) set.insert(v);
  return set;
}

// Reads a version from scratch and compares every byte.
::testing::AssertionResult can_read(const TestChain& real, uint64_t version) {
  const Result<Plan> plan = plan_catch_up(real.chain, {}, version);
  if (!plan.ok()) return ::testing::AssertionFailure() << plan.status().to_string();
  const auto state = follow_plan(*real.memory, *plan, {});
  if (!state.ok()) return ::testing::AssertionFailure() << state.status().to_string();
  if (*state != real.states[version]) return ::testing::AssertionFailure() << "differs";
  return ::testing::AssertionSuccess();
}

void expect_sound(const TestChain& real) {
  const auto report = must(check_chain(real.chain, {true, 1, {}}));
  EXPECT_TRUE(report.clean()) << (report.problems.empty() ? report.warnings : report.problems)[0];
}

class GcTest : public ::testing::Test {
 protected:
  GcTest() { fill(real); }
  TestChain real;
};

TEST_F(GcTest, KeepsTheNewestVersionsAndTheirAnchor) {
  const int64_t now = unix_seconds();
  const size_t parts = num_objects(*real.memory, "parts/") + num_objects(*real.memory, "full/");
  const GcReport report = collect(real, 3, now);
  EXPECT_EQ(report.head, 19U);
  EXPECT_EQ(report.kept, (std::vector<VersionRange>{{15, 19}}));
  EXPECT_EQ(report.num_versions, 15U);
  EXPECT_EQ(report.num_deleted, 0U);
  EXPECT_EQ(versions_of(real), numbers(15, 19));
  EXPECT_TRUE(can_read(real, 17));
  EXPECT_TRUE(can_read(real, 19));
  expect_sound(real);
  // Objects are kept for the grace period after their records are gone.
  EXPECT_EQ(num_objects(*real.memory, "parts/") + num_objects(*real.memory, "full/"), parts);
  EXPECT_EQ(collect(real, 3, now + kGrace - 1).num_deleted, 0U);
  const GcReport later = collect(real, 3, now + kGrace);
  EXPECT_EQ(later.num_deleted, report.num_noted);
  EXPECT_EQ(later.deleted_bytes, report.noted_bytes);
  EXPECT_EQ(num_objects(*real.memory, "parts/") + num_objects(*real.memory, "full/"),
            parts - report.num_noted);
  EXPECT_EQ(num_objects(*real.memory, "trash/"), 0U);
  expect_sound(real);
  // Nothing is left to do.
  const GcReport last = collect(real, 3, now + 2 * kGrace);
  EXPECT_EQ(last.num_versions + last.num_hops + last.num_noted + last.num_deleted, 0U);
}

TEST_F(GcTest, KeepsAllOfAShortChain) {
  for (const uint64_t keep : {20, 21, 1000}) {
    const GcReport report = collect(real, keep, unix_seconds());
    EXPECT_EQ(report.num_versions + report.num_hops + report.num_noted, 0U);
  }
  EXPECT_FAILS(real.chain.collect_garbage({0, 0}), kInvalidArgument);
  EXPECT_EQ(collect(TestChain(), 1, unix_seconds()).num_versions, 0U);
}

TEST_F(GcTest, DryRunChangesNothingAndReportsTheSame) {
  ASSERT_TRUE(real.memory->put("parts/0000000003-dead/x", MemoryBody("x")).ok());
  const int64_t now = unix_seconds() + 2 * kGrace;
  const size_t before = num_objects(*real.memory, "");
  const GcReport dry = collect(real, 3, now, true);
  EXPECT_EQ(num_objects(*real.memory, ""), before);
  const GcReport wet = collect(real, 3, now);
  EXPECT_EQ(dry.num_versions, wet.num_versions);
  EXPECT_EQ(dry.num_hops, wet.num_hops);
  EXPECT_EQ(dry.num_noted, wet.num_noted);
  EXPECT_EQ(dry.noted_bytes, wet.noted_bytes);
  EXPECT_EQ(dry.num_orphans, 1U);
  EXPECT_EQ(wet.num_orphans, 1U);
  const GcReport dry_sweep = collect(real, 3, now + kGrace, true);
  EXPECT_EQ(dry_sweep.num_deleted, wet.num_noted);
  EXPECT_EQ(collect(real, 3, now + kGrace).num_deleted, wet.num_noted);
}

TEST_F(GcTest, KeepsWhatAPinNeeds) {
  ASSERT_TRUE(real.chain.pin(8).ok());
  ASSERT_TRUE(real.chain.pin(12).ok());
  EXPECT_EQ(list_pins(*real.memory).value(), (std::vector<uint64_t>{8, 12}));
  int64_t now = unix_seconds();
  const GcReport report = collect(real, 1, now);
  EXPECT_EQ(report.kept, (std::vector<VersionRange>{{6, 8}, {11, 12}, {15, 19}}));
  collect(real, 1, now += kGrace);
  expect_sound(real);
  for (const uint64_t version : {6, 7, 8, 11, 12, 15, 19}) EXPECT_TRUE(can_read(real, version));
  EXPECT_EQ(real.chain.head().value(), 19U);
  ASSERT_TRUE(real.chain.unpin(8).ok());
  EXPECT_FAILS(real.chain.unpin(8), kNotFound, "version 8");
  collect(real, 1, now);
  collect(real, 1, now + kGrace);
  EXPECT_EQ(real.chain.version(7).status().code(), Code::kNotFound);
  expect_sound(real);
  EXPECT_TRUE(can_read(real, 12));
  EXPECT_FAILS(real.chain.pin(7), kNotFound);
}

TEST(Gc, RaceWithAPinHasOneWinner) {
  DW_LABEL(long);
  // Version 8 is pinned before the n-th request of gc: afterwards it is pinned and readable, or the
  // pin was refused.
  size_t pinned = 0, refused = 0;
  for (uint64_t n = 0;; ++n) {
    TestChain real;
    fill(real);
    const Chain other = Chain::open(real.memory, {}).value();
    std::atomic<int64_t> left = int64_t(n);
    bool reached = false;
    Status outcome;
    real.hooks->before = [&](std::string_view, std::string_view) {
      if (left-- == 0) {
        reached = true;
        outcome = other.pin(8);
      }
      return Status();
    };
    ASSERT_TRUE(real.chain.collect_garbage({1, 0}).ok());
    real.hooks->before = {};
    if (!reached) break;
    real.memory->set_clock(unix_seconds() + 1);
    ASSERT_TRUE(real.chain.collect_garbage({1, 0}).ok());
    if (outcome.ok()) {
      ++pinned;
      EXPECT_TRUE(can_read(real, 8)) << n;
    } else {
      ++refused;
      EXPECT_TRUE(outcome.code() == Code::kConflict || outcome.code() == Code::kNotFound) << n;
      EXPECT_TRUE(list_pins(*real.memory)->empty()) << n;
    }
    expect_sound(real);
  }
  EXPECT_GT(pinned, 10U);
  EXPECT_GT(refused, 10U);
}

Heartbeat reader(std::optional<uint64_t> from, uint64_t to, int64_t now, int64_t expires) {
  return {.name = "reader", .host = "h", .seen = now, .lease = Lease{from, to, expires}};
}

TEST_F(GcTest, KeepsLeasedVersions) {
  int64_t now = unix_seconds();
  ASSERT_TRUE(write_heartbeat(*real.memory, reader(3, 9, now, now + 10 * kGrace)).ok());
  EXPECT_EQ(collect(real, 1, now).kept, (std::vector<VersionRange>{{0, 9}, {15, 19}}));
  collect(real, 1, now += kGrace);
  const auto plan = must(plan_catch_up(real.chain, real.held(3), 9));
  EXPECT_EQ(follow_plan(*real.memory, plan, real.states[3]).value(), real.states[9]);
  // An expired lease is collected in two steps.
  now += 10 * kGrace;
  EXPECT_EQ(collect(real, 1, now).kept, (std::vector<VersionRange>{{15, 19}}));
  collect(real, 1, now + kGrace);
  expect_sound(real);
  EXPECT_EQ(versions_of(real), numbers(15, 19));
}

TEST_F(GcTest, LimitsLeasesOfFastClocks) {
  const int64_t now = unix_seconds();
  ASSERT_TRUE(write_heartbeat(*real.memory, reader({}, 9, now, now + 1'000'000'000)).ok());
  EXPECT_EQ(collect(real, 1, now + kMaxLeaseSeconds - 1, true).kept.size(), 2U);
  EXPECT_EQ(collect(real, 1, now + kMaxLeaseSeconds, true).kept.size(), 1U);
}

TEST_F(GcTest, ServesAReaderThatPlannedBeforeItsLease) {
  int64_t now = unix_seconds();
  const Plan plan = plan_catch_up(real.chain, {}, 9).value();
  collect(real, 1, now);  // sees no lease: the records go
  ASSERT_TRUE(write_heartbeat(*real.memory, reader({}, 9, now, now + 3 * kGrace)).ok());
  const GcReport held = collect(real, 1, now += 2 * kGrace);  // the objects are due, but are read
  EXPECT_GT(held.num_waiting, 0U);
  EXPECT_EQ(follow_plan(*real.memory, plan, {}).value(), real.states[9]);
  expect_sound(real);
  collect(real, 1, now + 2 * kGrace);
  EXPECT_FALSE(follow_plan(*real.memory, plan, {}).ok());
  expect_sound(real);
}

TEST_F(GcTest, UnreadableHeartbeatDelaysDeletion) {
  ASSERT_TRUE(real.memory->put("replicas/x.json", MemoryBody("{}")).ok());
  const Plan plan = plan_catch_up(real.chain, {}, 9).value();  // what its replica may be reading
  const int64_t now = unix_seconds();
  const GcReport first = collect(real, 1, now);
  EXPECT_EQ(first.num_versions, 15U);
  const GcReport second = collect(real, 1, now + 2 * kGrace);
  EXPECT_EQ(second.num_deleted, 0U);
  EXPECT_EQ(second.num_waiting, first.num_noted);
  for (const GcReport* report : {&first, &second}) {
    ASSERT_EQ(report->notes.size(), 1U);
    EXPECT_TRUE(contains(report->notes[0], "replicas/x.json"));
  }
  EXPECT_EQ(follow_plan(*real.memory, plan, {}).value(), real.states[9]);
  // But not for ever.
  EXPECT_EQ(collect(real, 1, unix_seconds() + kMaxLeaseSeconds + 2).num_deleted, first.num_noted);
  EXPECT_EQ(num_objects(*real.memory, "replicas/"), 1U);
  EXPECT_EQ(collect(real, 1, unix_seconds() + 31 * 24 * 3600).num_forgotten, 1U);
  EXPECT_EQ(num_objects(*real.memory, "replicas/"), 0U);
}

TEST_F(GcTest, RemovesOrphansInTwoSteps) {
  const std::string_view bytes = "xyz";
  for (const char* name : {"parts/0000000018-dead/part-00000.safetensors", "full/0000000016-dead/x",
                           "parts/0000000002-dead/x", "pending/0000000007-dead/rank-00000.json"}) {
    ASSERT_TRUE(real.memory->put(name, MemoryBody(bytes)).ok());
  }
  // A publish in progress, an unknown file, a name that only looks like a part: never touched.
  for (const char* name : {"parts/0000000020-live/x", "notes.txt", "parts/y"}) {
    ASSERT_TRUE(real.memory->put(name, MemoryBody(bytes)).ok());
  }
  int64_t now = unix_seconds();
  EXPECT_EQ(collect(real, 100, now).num_orphans, 0U);  // too young
  const GcReport noted = collect(real, 100, now += kGrace + 5);
  EXPECT_EQ(noted.num_orphans, 4U);
  EXPECT_EQ(noted.num_deleted, 0U);
  EXPECT_EQ(collect(real, 100, now + 5).num_orphans, 0U);  // noted already
  EXPECT_EQ(collect(real, 100, now += kGrace).num_deleted, 4U);
  for (const char* name : {"parts/0000000020-live/x", "notes.txt", "parts/y"}) {
    EXPECT_TRUE(real.memory->stat(name).ok()) << name;
  }
  for (uint64_t version = 0; version < 20; ++version) EXPECT_TRUE(can_read(real, version));
}

TEST(Gc, KeepsANotedOrphanOnceARecordNamesIt) {
  // A compaction that took longer than the grace period.
  TestChain real;
  fill(real);
  int64_t now = unix_seconds();
  const std::string bytes =
      real.memory->get(real.records[13].manifest.parts[0].name, 1 << 20).value();
  const PartRef part{"parts/0000000013-slow/part-00000.safetensors", bytes.size(),
                     record_digest(bytes)};
  ASSERT_TRUE(real.memory->put(part.name, MemoryBody(bytes)).ok());
  EXPECT_EQ(collect(real, 100, now += kGrace + 5).num_orphans, 1U);
  ASSERT_TRUE(add_hop(real.chain, &real.records[12], real.records[13], {part}).ok());
  EXPECT_EQ(collect(real, 100, now += kGrace + 5).num_deleted, 0U);
  EXPECT_TRUE(real.memory->stat(part.name).ok());
  EXPECT_EQ(num_objects(*real.memory, "trash/"), 0U);
}

TEST(Gc, RefusesAChainWithoutAnchor) {
  TestChain real;
  for (int v = 0; v < 8; ++v) real.publish_step();
  ASSERT_TRUE(real.memory->remove(real.records[0].manifest.parts[0].name).ok());
  EXPECT_FAILS(real.chain.collect_garbage({2, kGrace}), kCorruption,
               "no anchor leads to version 7");
  EXPECT_EQ(versions_of(real), numbers(0, 7));
}

TEST_F(GcTest, IgnoresAnAnchorWithoutItsObjects) {
  const auto hops = list_hops(real.chain, 15, 15, 1).value();
  ASSERT_FALSE(hops.empty());
  const HopRecord anchor = read_hop(real.chain, hops[0]).value();
  ASSERT_FALSE(anchor.base.has_value());
  ASSERT_TRUE(real.memory->remove(anchor.parts[0].name).ok());
  EXPECT_EQ(collect(real, 3, unix_seconds()).kept, (std::vector<VersionRange>{{11, 19}}));
}

TEST_F(GcTest, ForgedNotesDeleteNothing) {
  const int64_t now = unix_seconds();
  // The store's clock makes each note older than the grace period.
  const auto put_note = [&](const Trash& trash) {
    real.memory->set_clock(now - 10 * kGrace);
    const std::string text = serialise_trash(trash);
    EXPECT_TRUE(real.memory->put("trash/0000000001-x.json", MemoryBody(text)).ok());
    real.memory->set_clock(now);
  };
  for (const char* name : {"manifests/0000000019.json", "run.json", "schemas/x.json"}) {
    put_note({now, {}, {{name, 1, ""}}});
    const GcReport report = collect(real, 100, now);
    EXPECT_EQ(report.num_deleted, 0U);
    EXPECT_EQ(report.notes.size(), 1U);
  }
  // Notes that name parts of existing records.
  Trash trash{now, {}, {}};
  trash.objects.push_back({real.records[19].manifest.parts[0].name, 1, ""});
  trash.objects.push_back({real.records[18].manifest.parts[0].name, 1, manifest_name(18)});
  put_note(trash);
  EXPECT_EQ(collect(real, 100, now).num_deleted, 0U);
  expect_sound(real);
  // The same, attributed to a record that does not exist.
  trash.objects = {{real.records[19].manifest.parts[0].name, 1, "manifests/9999999999.json"}};
  // Objects that a publisher or a compaction is about to reference.
  for (const char* name : {"parts/0000000020-live/x", "parts/0000000012-live/x"}) {
    ASSERT_TRUE(real.memory->put(name, MemoryBody("x")).ok());
    trash.objects.push_back({name, 1, ""});
  }
  put_note(trash);
  EXPECT_EQ(collect(real, 100, now).num_deleted, 0U);
  for (const TrashedObject& object : trash.objects)
    EXPECT_TRUE(real.memory->stat(object.name).ok());
}

// ---- clocks

constexpr int64_t kAnHour = 3600, kFarOff[] = {-1000 * kAnHour, -kAnHour, kAnHour, 1000 * kAnHour};

// With a store that reports its time, and with one that does not.
TEST(Gc, MeasuresTheGracePeriodByTheStoreClock) {
  for (const int64_t ahead : kFarOff) {
    for (const bool can_be_asked : {true, false}) {
      SCOPED_TRACE(std::to_string(ahead) + (can_be_asked ? ", asked" : ", not asked"));
      TestChain real;
      const int64_t now = unix_seconds() + ahead;
      real.memory->set_clock(now);
      fill(real);
      const Chain chain = can_be_asked ? Chain::open(real.memory, {}).value() : real.chain;
      const auto at = [&](int64_t seconds) {
        real.memory->set_clock(now + seconds);
        return chain.collect_garbage({3, kGrace}).value();
      };
      const GcReport first = at(0);
      EXPECT_EQ(first.num_versions, 15U);
      const GcReport early = at(kGrace - 1);
      EXPECT_EQ(early.num_deleted, 0U);
      ASSERT_EQ(early.waiting.size(), 1U);
      EXPECT_EQ(early.waiting[0].because.why, "grace period");
      EXPECT_EQ(early.waiting[0].because.until, now + kGrace);
      EXPECT_EQ(early.waiting[0].num_objects, first.num_noted);
      EXPECT_EQ(early.waiting[0].bytes, first.noted_bytes);
      EXPECT_EQ(at(kGrace).num_deleted, first.num_noted);
      EXPECT_EQ(num_objects(*real.memory, "trash/"), 0U);
      expect_sound(real);
    }
  }
}

// The clock of the machine that wrote the note does not count.
TEST(Gc, NoteAgeIsByTheStoreClock) {
  for (const int64_t ahead : kFarOff) {
    TestChain real;
    fill(real);
    const int64_t now = unix_seconds();
    ASSERT_TRUE(real.memory->put("parts/0000000003-dead/x", MemoryBody("x")).ok());
    ASSERT_TRUE(
        put_trash(*real.memory, {now + ahead, {}, {{"parts/0000000003-dead/x", 1, ""}}}).ok());
    EXPECT_EQ(collect(real, 100, now + kGrace - 5).num_deleted, 0U) << ahead;
    EXPECT_EQ(collect(real, 100, now + kGrace + 5).num_deleted, 1U) << ahead;
  }
}

TEST(Gc, LeasesExpireByTheStoreClock) {
  for (const int64_t ahead : kFarOff) {
    TestChain real;
    fill(real);
    const int64_t now = unix_seconds(), his = now + ahead;
    real.memory->set_clock(now);
    ASSERT_TRUE(write_heartbeat(*real.memory, reader({}, 9, his, his + kLeaseSeconds)).ok());
    const GcReport live = collect(real, 1, now + kLeaseSeconds - 1, true);
    EXPECT_EQ(live.kept, (std::vector<VersionRange>{{6, 9}, {15, 19}})) << ahead;
    ASSERT_EQ(live.reasons.size(), 2U);
    EXPECT_EQ(live.reasons[1].because.replica, "reader");
    EXPECT_EQ(live.reasons[1].because.until, now + kLeaseSeconds);
    EXPECT_EQ(collect(real, 1, now + kLeaseSeconds, true).kept.size(), 1U) << ahead;
  }
}

class StoreWithoutTimes final : public ForwardingStore {
 public:
  using ForwardingStore::ForwardingStore;
  Result<int64_t> clock() override { return Store::clock(); }
  Result<ObjectInfo> stat(std::string_view name) override {
    DW_ASSIGN_OR_RETURN(ObjectInfo info, inner().stat(name));
    info.modified = 0;
    return info;
  }
  Result<std::vector<ObjectInfo>> list(std::string_view prefix, std::string_view start_after,
                                       size_t limit) override {
    DW_ASSIGN_OR_RETURN(std::vector<ObjectInfo> page, inner().list(prefix, start_after, limit));
    for (ObjectInfo& info : page) info.modified = 0;
    return page;
  }
};

TEST_F(GcTest, NeedsStoreTimesForAGracePeriod) {
  const size_t before = num_objects(*real.memory, "");
  const Chain chain = Chain::open(std::make_shared<StoreWithoutTimes>(real.memory)).value();
  EXPECT_FAILS(chain.collect_garbage({1, kGrace}), kUnsupported, "no times");
  EXPECT_EQ(num_objects(*real.memory, ""), before);
  // A dry run works with this machine's clock, which may be wrong.
  const GcReport dry = chain.collect_garbage({1, kGrace, true}).value();
  EXPECT_EQ(dry.num_versions, 15U);
  ASSERT_EQ(dry.notes.size(), 1U);
  EXPECT_TRUE(contains(dry.notes[0], "clock of this machine"));
  // Without a grace period, no times are needed.
  EXPECT_EQ(chain.collect_garbage({1, 0}).value().num_versions, 15U);
  EXPECT_GT(chain.collect_garbage({1, 0}).value().num_deleted, 0U);
  expect_sound(real);
}

// ---- reasons

TEST_F(GcTest, ReportsWhyVersionsAreKept) {
  ASSERT_TRUE(real.chain.pin(8).ok());
  ASSERT_TRUE(real.chain.pin(18).ok());
  const int64_t now = unix_seconds();
  real.memory->set_clock(now);
  ASSERT_TRUE(write_heartbeat(*real.memory, reader(12, 13, now, now + 60)).ok());
  const GcReport report = collect(real, 3, now, true);
  EXPECT_EQ(report.kept, (std::vector<VersionRange>{{6, 8}, {11, 13}, {15, 19}}));
  std::vector<std::string> reasons;
  for (const KeptVersions& kept : report.reasons) {
    reasons.push_back(kept.because.why + " " + kept.because.replica + " " +
                      std::to_string(kept.versions.first) + "-" +
                      std::to_string(kept.versions.last) + " from " + std::to_string(kept.first));
  }
  EXPECT_EQ(reasons,
            (std::vector<std::string>{"newest  17-19 from 15", "pinned  8-8 from 6",
                                      "pinned  18-18 from 18", "lease reader 12-13 from 11"}));
}

TEST_F(GcTest, ReportsWhyObjectsWait) {
  const int64_t now = unix_seconds();
  const GcReport noted = collect(real, 3, now);
  ASSERT_TRUE(write_heartbeat(*real.memory, reader({}, 9, now, now + 10 * kGrace)).ok());
  const GcReport read = collect(real, 3, now + kGrace);
  ASSERT_EQ(read.waiting.size(), 1U);
  EXPECT_EQ(read.waiting[0].because.why, "lease");
  EXPECT_EQ(read.waiting[0].because.replica, "reader");
  EXPECT_EQ(read.waiting[0].because.until, now + 10 * kGrace);
  EXPECT_EQ(read.waiting[0].num_objects + read.num_deleted, noted.num_noted);
  EXPECT_EQ(read.num_waiting, read.waiting[0].num_objects);
}

// ---- signed chains

struct SignedTestChain : TestChain {
  static ChainKeys signing() {
    return {[](std::string_view) -> Result<Signature> {
              return Signature{std::string(64, 'a'), std::string(128, 'b')};
            },
            {}};
  }
  SignedTestChain() : TestChain(signing()) {}
};

// Stands in for signature verification: any signature counts as one by the trusted key.
Status trust_signed(std::string_view, const std::optional<Signature>& signature) {
  return signature ? Status() : corruption("signature: expected one by a trusted key, got none");
}

TEST(Gc, SignedChainNeedsSignatureChecks) {
  SignedTestChain real;
  fill(real);
  const size_t before = num_objects(*real.memory, "");
  const Chain blind = Chain::open(real.memory, {}).value();
  const GcOptions options{1, 0};
  EXPECT_FAILS(blind.collect_garbage(options), kInvalidArgument, std::string(64, 'a'),
               "must check signatures");
  EXPECT_EQ(num_objects(*real.memory, ""), before);
  // Someone with write access to the store adds unsigned full versions on top.
  Chain stranger = Chain::open(real.memory, {}).value();
  Manifest forged = real.records[6].manifest;
  forged.signed_by.clear();
  for (uint64_t version = 20; version < 24; ++version) {
    forged.version = forged.anchor = version;
    forged.parent = stranger.version(version - 1).value().digest;
    forged.chain_bytes = real.records[19].manifest.chain_bytes + forged.part_bytes();
    ASSERT_TRUE(commit_version(stranger, forged).ok());
  }
  EXPECT_FAILS(blind.collect_garbage(options), kInvalidArgument, "is signed with key");
  const Chain trusting = open_with_keys(real.memory, {{}, trust_signed}).value();
  EXPECT_FAILS(trusting.collect_garbage(options), kCorruption, "manifests/0000000023.json",
               "signature");
  for (uint64_t version = 0; version < 20; ++version) EXPECT_TRUE(can_read(real, version));
  // With the trusted key gc works once the forged versions are gone; with `signed_too` it works
  // without a key.
  for (uint64_t version = 20; version < 24; ++version) {
    ASSERT_TRUE(real.memory->remove(manifest_name(version)).ok());
  }
  EXPECT_EQ(trusting.collect_garbage(options).value().num_versions, 15U);
  SignedTestChain left;
  fill(left);
  GcOptions anyway = options;
  anyway.signed_too = true;
  EXPECT_EQ(Chain::open(left.memory, {})->collect_garbage(anyway).value().num_versions, 15U);
}

// ---- temporaries

TEST(Gc, RemovesTemporaryFilesOfKilledWriters) {
  testing::TempFolder folder;
  const auto store = std::make_shared<DirectoryStore>(folder.path());
  TestChain real;
  fill(real, 4);
  ASSERT_TRUE(
      list_all(*real.memory, "", "", [&](const ObjectInfo& object) {
        return store->put(object.name, MemoryBody(*real.memory->get(object.name, 1 << 20))).ok();
      }).ok());
  // A put that was killed leaves its TemporaryFile behind.
  const auto leave = [&](const char* name, int hours) {
    const fs::path path = folder.path() / "parts" / name;
    std::ofstream(path) << "half";
    fs::last_write_time(path, fs::file_time_type::clock::now() - std::chrono::hours(hours));
    return path;
  };
  const auto old = leave(".deltawire-old", 25), young = leave(".deltawire-young", 23),
             strange = leave(".keep", 48);
  const Chain chain = Chain::open(store, {}).value();
  EXPECT_EQ(chain.collect_garbage({100, kGrace, true}).value().num_temporaries, 1U);
  EXPECT_TRUE(fs::exists(old));
  // A grace period of more than a day applies to temporary files, too.
  EXPECT_EQ(chain.collect_garbage({100, 26 * 3600, false}).value().num_temporaries, 0U);
  EXPECT_EQ(chain.collect_garbage({100, kGrace, false}).value().num_temporaries, 1U);
  EXPECT_FALSE(fs::exists(old));
  EXPECT_TRUE(fs::exists(young));
  EXPECT_TRUE(fs::exists(strange));
}

TEST_F(GcTest, RefusesTheCommitOfAPrunedVersion) {
  Manifest late = real.records[5].manifest;
  late.publisher = "sleeper:1";
  int64_t now = unix_seconds();
  collect(real, 3, now);
  EXPECT_FAILS(commit_version(real.chain, late).status, kConflict, "can no longer be committed");
  EXPECT_EQ(real.chain.head().value(), 19U);
  collect(real, 3, now);  // and takes what it left
  EXPECT_EQ(versions_of(real), numbers(15, 19));
}

// Killed before each single request, then run again.
TEST(Gc, SurvivesAKillAtAnyRequest) {
  DW_LABEL(long);
  size_t killed = 0;
  for (const bool second_run : {false, true}) {
    for (uint64_t n = 0;; ++n) {
      TestChain real;
      fill(real);
      ASSERT_TRUE(real.chain.pin(8).ok());
      must(real.memory->put("parts/0000000003-dead/x", MemoryBody("x")));
      int64_t now = unix_seconds() + kGrace + 5;
      const Lease lease{12, 13, now + 10 * kGrace};
      ASSERT_TRUE(
          write_heartbeat(*real.memory, {.name = "r", .host = "h", .seen = now, .lease = lease})
              .ok());
      const Plan plan = plan_catch_up(real.chain, real.held(12), 13).value();
      if (second_run) {
        collect(real, 3, now);
        now += kGrace;
      }
      std::atomic<int64_t> left = int64_t(n);
      real.hooks->before = [&](std::string_view, std::string_view) {
        return left-- <= 0 ? unavailable("killed") : Status();
      };
      real.memory->set_clock(now);
      const auto report = real.chain.collect_garbage({3, kGrace});
      real.hooks->before = {};
      if (report.ok()) break;
      ++killed;
      // fsck may report only the orphan, until gc has noted it.
      const auto fsck = must(check_chain(real.chain, {true, 1, {}}));
      EXPECT_TRUE(fsck.problems.empty()) << n << ": " << fsck.problems[0];
      EXPECT_LE(fsck.warnings.size(), 1U) << n << ": " << fsck.warnings.back();
      EXPECT_EQ(real.chain.head().value(), 19U);
      EXPECT_EQ(follow_plan(*real.memory, plan, real.states[12]).value(), real.states[13]) << n;
      for (const uint64_t version : {8, 13, 15, 17, 19}) {
        EXPECT_TRUE(can_read(real, version)) << n << ", version " << version;
      }
      // The next runs finish the work.
      collect(real, 3, now);
      collect(real, 3, now + kGrace);
      collect(real, 3, now + 2 * kGrace);
      EXPECT_EQ(num_objects(*real.memory, "trash/"), 0U) << n;
      std::set<uint64_t> expected = numbers(11, 13);
      expected.merge(numbers(6, 8));
      expected.merge(numbers(15, 19));
      EXPECT_EQ(versions_of(real), expected) << n;
      expect_sound(real);
    }
  }
  EXPECT_GT(killed, 60U);
}

TEST(Trash, RoundTrips) {
  const Trash trash{1'800'000'000,
                    {{0, 4}, {9, 9}},
                    {{"parts/0000000001-aa/x", 12, "manifests/0000000001.json"},
                     {"full/0000000001-aa/y", 0, ""}}};
  EXPECT_EQ(parse_trash(serialise_trash(trash)).value(), trash);
  EXPECT_EQ(parse_trash(serialise_trash({})).value(), Trash{});
}

}  // namespace
}  // namespace deltawire::testing
