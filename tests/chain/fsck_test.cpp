#include "chain/fsck.h"

#include "chain/heartbeat.h"
#include "chain/keys.h"
#include "chain/retention.h"
#include "support/test_chain.h"

namespace deltawire::testing {
namespace {

// Seven versions (one full), an anchor, merged deltas, a pin, a heartbeat and a gc note.
void fill_for_fsck(TestChain& real) {
  for (int v = 0; v < 7; ++v) real.publish_step(v == 3);
  real.add_anchor(5);
  real.add_merged(3, 5);
  real.add_merged(0, 2);
  ASSERT_TRUE(real.chain.pin(2).ok());
  ASSERT_TRUE(write_heartbeat(*real.memory, {.name = "r", .host = "h"}).ok());
  ASSERT_TRUE(put_trash(*real.memory, {1'700'000'000, {}, {}}).ok());
}

FsckReport check(const TestChain& real) {
  ObjectCheck options{.threads = 2};
  return must(check_chain(real.chain, options));
}

bool names_problem(const FsckReport& report, std::string_view phrase) {
  return std::ranges::any_of(report.problems, [&](const std::string& problem) {
    return problem.find(phrase) != std::string::npos;
  });
}

class FsckTest : public ::testing::Test {
 protected:
  FsckTest() { fill_for_fsck(real); }
  TestChain real;
};

TEST_F(FsckTest, SoundChainIsClean) {
  const FsckReport report = check(real);
  EXPECT_TRUE(report.clean()) << (report.problems.empty() ? report.warnings : report.problems)[0];
  EXPECT_EQ(report.num_versions, 7U);
  EXPECT_EQ(report.num_hops, 3U);
  EXPECT_EQ(report.num_schemas, 1U);
  EXPECT_EQ(report.num_parts,
            objects_of(*real.memory, "parts/").size() + objects_of(*real.memory, "full/").size());
  EXPECT_EQ(report.head, 6U);
  EXPECT_GT(report.bytes, 1000U);
}

TEST(Fsck, EmptyRunIsClean) { EXPECT_TRUE(check(TestChain()).clean()); }

TEST(FsckSlow, DetectsEverySingleByteChange) {
  DW_LABEL(slow);
  TestChain real;
  fill_for_fsck(real);
  size_t changes = 0;
  for (const std::string& object : objects_of(*real.memory)) {
    const std::string good = real.memory->get(object, 1 << 20).value();
    for (size_t at = 0; at < good.size(); ++at) {
      std::string bad = good;
      bad[at] = char(bad[at] ^ (1 << (at % 8)));
      ASSERT_TRUE(real.memory->put(object, MemoryBody(bad)).ok());
      const Result<FsckReport> report = check_chain(real.chain, {true, 1, {}});
      // With a damaged run record fsck fails at once.
      const bool found = report.ok() ? !report->clean() : object == kRunName;
      EXPECT_TRUE(found) << object << ", byte " << at;
      ++changes;
    }
    ASSERT_TRUE(real.memory->put(object, MemoryBody(good)).ok());
  }
  EXPECT_GT(changes, 10'000U);
  EXPECT_TRUE(check(real).clean());
}

TEST_F(FsckTest, DetectsEverySizeChangeAndLoss) {
  for (const std::string& object : objects_of(*real.memory)) {
    const std::string good = real.memory->get(object, 1 << 20).value();
    const auto is_found = [&] {
      const Result<FsckReport> report = check_chain(real.chain, {true, 1, {}});
      return report.ok() ? !report->clean() : object == kRunName;
    };
    ASSERT_TRUE(real.memory->put(object, MemoryBody(good + "x")).ok());
    EXPECT_TRUE(is_found()) << object << " with a byte more";
    if (!good.empty()) {
      ASSERT_TRUE(real.memory->put(object, MemoryBody(good.substr(0, good.size() - 1))).ok());
      EXPECT_TRUE(is_found()) << object << " with a byte less";
    }
    ASSERT_TRUE(real.memory->remove(object).ok());
    // Pins, heartbeats and gc notes are temporary: they may be missing.
    const bool may_go = object.starts_with(kPinPrefix) || object.starts_with(kReplicaPrefix) ||
                        object.starts_with(kTrashPrefix);
    EXPECT_NE(is_found(), may_go) << object << " removed";
    ASSERT_TRUE(real.memory->put(object, MemoryBody(good)).ok());
  }
  EXPECT_TRUE(check(real).clean());
}

// Files beside the weights.
TEST(Fsck, DetectsWrongSideFiles) {
  const auto problem_of = [](const std::function<void(TestChain&, Manifest*)>& tamper) {
    TestChain real;
    for (int v = 0; v < 3; ++v) real.publish_step();
    Manifest m = real.records[2].manifest;
    m.version = 3;
    m.base = 2;
    m.parent = real.records[2].digest;
    m.parts.clear();
    tamper(real, &m);
    EXPECT_TRUE(commit_version(real.chain, m).ok());
    const FsckReport report = check(real);
    return report.problems.empty() ? std::string() : report.problems[0];
  };
  EXPECT_EQ(problem_of([](TestChain&, Manifest*) {}), "");
  const auto add = [](TestChain& real, Manifest* m, uint64_t version) {
    SideFile file{"x.txt", 1, record_digest("x"), side_attempt(version, "aa")};
    EXPECT_TRUE(real.memory->put(side_object(file).name, MemoryBody("x")).ok());
    m->files.push_back(file);
  };
  EXPECT_EQ(problem_of([&](TestChain& real, Manifest* m) { add(real, m, 3); }), "");
  EXPECT_TRUE(contains(problem_of([&](TestChain& real, Manifest* m) { add(real, m, 2); }),
                       "x.txt: the version before does not have"));
  const auto whole = [](TestChain& real, Manifest* m) {
    m->kind = VersionKind::kFull;
    m->reason = "test";
    m->base.reset();
    m->parts.clear();
    for (const PartRef& part : real.records[0].manifest.parts) {
      const std::string bytes = real.memory->get(part.name, 1 << 20).value();
      m->parts.push_back(part);
      m->parts.back().name = full_folder(3, "aa") + part.name.substr(part.name.rfind('/') + 1);
      EXPECT_TRUE(real.memory->put(m->parts.back().name, MemoryBody(bytes)).ok());
    }
    m->chain_bytes += m->part_bytes();
    m->anchor = 3;
    m->anchor_bytes = m->part_bytes();
  };
  EXPECT_EQ(problem_of(whole), "");
  EXPECT_TRUE(contains(problem_of([&](TestChain& real, Manifest* m) {
                         whole(real, m);
                         add(real, m, 3);
                       }),
                       "x.txt is missing"));
  EXPECT_TRUE(contains(problem_of([&](TestChain& real, Manifest* m) {
                         whole(real, m);
                         m->files.clear();
                       }),
                       "the version has no file config.json"));
}

TEST_F(FsckTest, ReportsUnknownObjectsAsOrphans) {
  for (const char* name : {"parts/0000000002-ff/part-00000.safetensors", "full/0000000001-ff/x",
                           "pending/0000000001-ff/rank-00000.json", "schemas/x.json", "notes.txt",
                           "hops/x", "manifests/x", "parts/x", "pins/x"}) {
    ASSERT_TRUE(real.memory->put(name, MemoryBody("xyz")).ok());
    const FsckReport report = check(real);
    EXPECT_TRUE(report.problems.empty());
    ASSERT_EQ(report.warnings.size(), 1U) << name;
    EXPECT_TRUE(contains(report.warnings[0], name));
    EXPECT_EQ(report.num_orphans, 1U);
    EXPECT_EQ(report.orphan_bytes, 3U);
    ASSERT_TRUE(real.memory->remove(name).ok());
  }
  // Parts of a publish in progress are not orphans.
  ASSERT_TRUE(real.memory->put("parts/0000000007-ff/x", MemoryBody("xyz")).ok());
  const FsckReport report = check(real);
  EXPECT_TRUE(report.clean());
  EXPECT_EQ(report.num_waiting, 1U);
}

TEST_F(FsckTest, WithoutContentsChecksPresenceAndSizes) {
  const std::string name = real.records[4].manifest.parts[0].name;
  std::string bytes = real.memory->get(name, 1 << 20).value();
  bytes[20] = char(bytes[20] ^ 1);
  ASSERT_TRUE(real.memory->put(name, MemoryBody(bytes)).ok());
  EXPECT_TRUE(check_chain(real.chain, {false, 1, {}})->clean());
  EXPECT_FALSE(check(real).clean());
  ASSERT_TRUE(real.memory->remove(name).ok());
  EXPECT_EQ(check_chain(real.chain, {false, 1, {}})->problems.size(), 1U);
}

// Records with valid checksums that contradict each other, as a forger would write them.
TEST(Fsck, DetectsRecordsThatContradictTheirParts) {
  struct Lie {
    const char* what;
    std::function<void(Manifest*)> tell;
    const char* phrase;
  };
  const Lie lies[] = {
      {"digest", [](Manifest* m) { m->digests[0].bytes[0] ^= 1; }, "state digest"},
      {"state", [](Manifest* m) { m->state.bytes[0] ^= 1; }, "state digest"},
      {"a digest less", [](Manifest* m) { m->digests.pop_back(); }, "digests: expected 3"},
      {"parent", [](Manifest* m) { m->parent->bytes[0] ^= 1; }, "parent"},
      {"sums", [](Manifest* m) { m->chain_bytes += 1; }, "chain_bytes"},
      {"a part less", [](Manifest* m) { m->parts.pop_back(); }, "chain_bytes"},
      {"a part twice", [](Manifest* m) { m->parts[1] = m->parts[0]; }, "named twice"},
      {"base", [](Manifest* m) { m->base = 2; }, "base"},
      {"kind",
       [](Manifest* m) {
         m->kind = VersionKind::kFull;
         m->base.reset();
       },
       "outside"},
  };
  for (const Lie& lie : lies) {
    TestChain real;
    for (int v = 0; v < 5; ++v) real.publish_step();
    Manifest m = real.records[4].manifest;  // the head: no successor knows its digest
    lie.tell(&m);
    ASSERT_TRUE(
        real.memory->put(manifest_name(4), MemoryBody(serialise_manifest(m, {}).value())).ok());
    const FsckReport report = check(real);
    EXPECT_TRUE(names_problem(report, lie.phrase)) << lie.what;
  }
}

TEST(Fsck, DetectsPartsOfAnotherVersion) {
  // The parts of version 2 under the manifest of version 3: intact, but with another base.
  TestChain real;
  for (int v = 0; v < 4; ++v) real.publish_step();
  Manifest m = real.records[3].manifest;
  m.parts = real.records[2].manifest.parts;
  m.chain_bytes = real.records[2].manifest.chain_bytes + m.part_bytes();
  ASSERT_TRUE(
      real.memory->put(manifest_name(3), MemoryBody(serialise_manifest(m, {}).value())).ok());
  const FsckReport report = check(real);
  EXPECT_TRUE(names_problem(report, "base: expected"));
}

TEST(Fsck, AllowsSchemaChanges) {
  TestChain real;
  real.publish_step();
  real.publish_step();
  State grown = real.states.back();
  grown.push_back(make_tensor("d", DType::kF16, {4}, 9));
  real.publish(grown, true);
  change(&grown[3], 1, 3);
  real.publish(grown);
  const FsckReport report = check(real);
  EXPECT_TRUE(report.clean()) << (report.problems.empty() ? report.warnings : report.problems)[0];
  EXPECT_EQ(report.num_schemas, 2U);
}

TEST_F(FsckTest, MissingVersionIsDamageWithoutAnotherPath) {
  const std::string two = real.memory->get(manifest_name(1), 1 << 20).value();
  ASSERT_TRUE(real.memory->remove(manifest_name(1)).ok());
  // The merged delta leads to version 2; the parts of version 1 are now orphans.
  FsckReport report = check(real);
  EXPECT_TRUE(report.problems.empty());
  EXPECT_EQ(report.num_orphans, real.records[1].manifest.parts.size());
  // Without version 0, nothing leads to version 2.
  ASSERT_TRUE(real.memory->remove(manifest_name(0)).ok());
  report = check(real);
  EXPECT_TRUE(names_problem(report, "manifests/0000000002.json: no anchor leads"));
}

TEST(Fsck, DetectsDamagedSignaturesWithoutAKey) {
  TempFolder folder;
  ASSERT_TRUE(make_key_files(folder.path() / "k").ok());
  TestChain real({make_signer(folder.path() / "k").value(), check_signatures_only()});
  for (int v = 0; v < 2; ++v) real.publish_step();
  EXPECT_TRUE(check(real).clean());
  std::string text = real.memory->get(manifest_name(1), 1 << 20).value();
  const size_t begin = text.find("\"ed25519\":\"") + 11;
  for (size_t at = begin; at < begin + 128; ++at) {
    std::string bad = text;
    bad[at] = bad[at] == '0' ? '1' : '0';
    ASSERT_TRUE(real.memory->put(manifest_name(1), MemoryBody(bad)).ok());
    EXPECT_FALSE(check(real).problems.empty()) << at;
  }
}

TEST_F(FsckTest, StoreFailureIsNotDamage) {
  real.hooks->requests = 0;
  ASSERT_TRUE(check(real).clean());
  const uint64_t requests = real.hooks->requests;
  for (uint64_t n = 0; n < requests; n += 3) {
    std::atomic<int64_t> left = int64_t(n);
    real.hooks->before = [&](std::string_view, std::string_view) {
      return left-- == 0 ? unavailable("injected") : Status();
    };
    EXPECT_EQ(check_chain(real.chain, {true, 1, {}}).status().code(), Code::kUnavailable) << n;
  }
}

}  // namespace
}  // namespace deltawire::testing
