// Plans against an exhaustive reference, and against damaged and hostile stores.
#include "chain/plan.h"

#include <gtest/gtest.h>

#include <limits>

#include "chain/plan_graph.h"
#include "support/test_chain.h"
#include "test_files.h"

namespace deltawire::testing {
namespace {

constexpr uint64_t kInfinite = std::numeric_limits<uint64_t>::max();

std::optional<Held> held_at(const TestChain& made, std::optional<uint64_t> version) {
  if (!version) return {};
  return made.held(*version);
}

uint64_t cost_of(const Plan& plan) { return plan.bytes + kHopCost * plan.hops.size(); }

// Each hop starts where the previous one ended; the bytes are the sum of the parts.
void expect_sound(const TestChain& made, const Plan& plan, std::optional<uint64_t> held,
                  uint64_t target) {
  std::optional<uint64_t> at = held;
  uint64_t bytes = 0;
  for (const Hop& hop : plan.hops) {
    if (hop.base) {
      EXPECT_EQ(hop.base, at);
    } else {
      EXPECT_EQ(&hop, &plan.hops.front());
    }
    EXPECT_EQ(hop.kind == HopKind::kAnchor, !hop.base);
    ASSERT_EQ(hop.parts.size(), 1U);
    EXPECT_EQ(hop.bytes, hop.parts[0].size_bytes);
    bytes += hop.bytes;
    at = hop.version;
  }
  EXPECT_EQ(at, target);
  EXPECT_EQ(plan.bytes, bytes);
  EXPECT_EQ(plan.target.digest, made.records[target].digest);
  EXPECT_EQ(plan.schema.tensors.size(), 1U);
}

// The lowest cost to each version over all versions and hop records, limited to those for which
// `visible` is true.
uint64_t cheapest_cost(const TestChain& made, std::optional<uint64_t> held, uint64_t target,
                       const std::function<bool(uint64_t version, bool full_version)>& visible) {
  std::vector<uint64_t> cost(target + 1, kInfinite);
  for (uint64_t v = 0; v <= target; ++v) {
    const Manifest& version = made.records[v].manifest;
    const bool full = version.kind == VersionKind::kFull;
    const uint64_t bytes = version.part_bytes();
    if (held == v) cost[v] = 0;
    if (full && visible(v, true)) cost[v] = std::min(cost[v], bytes + kHopCost);
    if (!full && cost[v - 1] != kInfinite) {
      cost[v] = std::min(cost[v], cost[v - 1] + bytes + kHopCost);
    }
    for (const HopName& hop : made.hops) {
      if (hop.version != v || !visible(v, false)) continue;
      const uint64_t before = hop.base ? cost[*hop.base] : 0;
      if (before != kInfinite) cost[v] = std::min(cost[v], before + hop.bytes + kHopCost);
    }
  }
  return cost[target];
}

struct Shape {
  int versions;
  int full_percent, anchor_percent, merged;
};

TestChain random_chain(std::mt19937_64& random, const Shape& shape) {
  TestChain made;
  const auto size = [&](uint64_t scale) { return 1 + random() % (scale * 20'000); };
  for (int v = 0; v < shape.versions; ++v) {
    made.add(size(5), int(random() % 100) < shape.full_percent);
    const bool anchored = int(random() % 100) < shape.anchor_percent;
    if (anchored && made.records.back().manifest.base) made.add_hop({}, uint64_t(v), size(20));
  }
  for (int i = 0; i < shape.merged; ++i) {
    const uint64_t version = 1 + random() % uint64_t(shape.versions - 1);
    made.add_hop(random() % version, version, size(8));
  }
  return made;
}

TEST(Plan, IsTheCheapestVisiblePath) {
  DW_LABEL(long);
  std::mt19937_64 random(7);
  const Shape shapes[] = {{30, 0, 0, 0},   {30, 0, 10, 0},  {30, 10, 0, 0},   {30, 0, 0, 20},
                          {30, 0, 10, 20}, {30, 10, 5, 20}, {12, 30, 30, 30}, {60, 2, 5, 60}};
  size_t merged = 0, anchored = 0, plain = 0;
  for (int round = 0; round < 400; ++round) {
    const Shape& shape = shapes[size_t(round) % std::size(shapes)];
    const TestChain made = random_chain(random, shape);
    for (int i = 0; i < 8; ++i) {
      const uint64_t target = random() % uint64_t(shape.versions);
      std::optional<uint64_t> held;
      if (random() % 4 != 0) held = random() % (target + 1);
      const Plan plan = must(plan_catch_up(made.chain, held_at(made, held), target));
      EXPECT_TRUE(plan.notes.empty()) << plan.notes[0];
      expect_sound(made, plan, held, target);
      for (const Hop& hop : plan.hops) {
        ++(hop.kind == HopKind::kMerged ? merged : hop.kind == HopKind::kAnchor ? anchored : plain);
      }
      // A plan reads hops from the held version on, or from the newest anchor known to the target,
      // whichever is older; of full versions it reads the target and that anchor.
      const uint64_t anchor = made.records[target].manifest.anchor;
      const uint64_t first = held ? std::min(*held + 1, anchor) : anchor;
      const bool from_anchor = !held || *held < anchor;
      uint64_t seen = cheapest_cost(made, held, target, [&](uint64_t version, bool full_version) {
        if (full_version) return version == target || (from_anchor && version == anchor);
        return version >= (from_anchor ? first : *held + 1);
      });
      // The next delta is taken without a search when it is smaller than the anchor.
      const Manifest& next = made.records[target].manifest;
      if (held && *held + 1 == target && next.base && next.part_bytes() <= next.anchor_bytes) {
        seen = next.part_bytes() + kHopCost;
      }
      const uint64_t best = cheapest_cost(made, held, target, [](uint64_t, bool) { return true; });
      EXPECT_LE(cost_of(plan), seen) << "round " << round;
      EXPECT_GE(cost_of(plan), best) << "round " << round;
      if (shape.full_percent == 0) {
        EXPECT_EQ(cost_of(plan), seen) << "round " << round;
      }
    }
  }
  // All kinds of hops were seen.
  EXPECT_GT(merged, 500U);
  EXPECT_GT(anchored, 500U);
  EXPECT_GT(plain, 500U);
}

TEST(Plan, IsEmptyAtTheTarget) {
  TestChain made;
  for (int i = 0; i < 3; ++i) made.add(10);
  const Plan plan = plan_catch_up(made.chain, held_at(made, 2), 2).value();
  EXPECT_TRUE(plan.hops.empty());
  EXPECT_EQ(plan.bytes, 0U);
  EXPECT_EQ(plan.all_deltas_bytes, 0U);
}

TEST(Plan, NextVersionTakesTwoRequests) {
  TestChain made;
  made.add(1000);
  for (int i = 0; i < 5; ++i) made.add(10);
  made.hooks->requests = 0;
  const Plan plan = plan_catch_up(made.chain, held_at(made, 4), 5).value();
  EXPECT_EQ(plan.hops.size(), 1U);
  EXPECT_EQ(plan.all_deltas_bytes, 10U);
  EXPECT_EQ(made.hooks->requests, 2U);
}

TEST(Plan, GoingBackStartsAtAnAnchor) {
  TestChain made;
  made.add(1000);
  for (int i = 0; i < 9; ++i) made.add(10);
  const Plan plan = plan_catch_up(made.chain, held_at(made, 9), 2).value();
  ASSERT_EQ(plan.hops.size(), 3U);
  EXPECT_EQ(plan.hops[0].kind, HopKind::kAnchor);
  EXPECT_EQ(plan.bytes, 1020U);
}

TEST(Plan, StartsAtAFullVersionOnTheWay) {
  TestChain made;
  made.add(1000);
  for (int i = 1; i < 10; ++i) made.add(10, i == 5);
  const Plan plan = plan_catch_up(made.chain, held_at(made, 2), 9).value();
  ASSERT_EQ(plan.hops.size(), 5U);
  EXPECT_EQ(plan.hops[0].version, 5U);
  EXPECT_EQ(plan.hops[0].kind, HopKind::kAnchor);
  const Plan full = plan_catch_up(made.chain, held_at(made, 4), 5).value();
  ASSERT_EQ(full.hops.size(), 1U);
  EXPECT_EQ(full.hops[0].kind, HopKind::kAnchor);
}

TEST(Plan, AnotherHistoryIsABaseMismatch) {
  TestChain made, other;
  for (int i = 0; i < 10; ++i) made.add(10), other.add(10);
  for (const uint64_t target : {2, 3, 4, 9}) {  // behind, at, next to and far from what is held
    EXPECT_FAILS(plan_catch_up(made.chain, Held{3, other.records[3].digest}, target), kBaseMismatch,
                 "version 3", other.records[3].digest.hex());
  }
}

TEST(Plan, SkipsPrunedVersions) {
  TestChain made;
  for (int i = 0; i < 30; ++i) {
    made.add(i == 0 ? 100'000 : 10);
    if (i == 20) made.add_hop({}, 20, 100'000);
  }
  for (uint64_t v = 0; v < 20; ++v) ASSERT_TRUE(made.memory->remove(manifest_name(v)).ok());
  // Holding nothing, holding a version pruned long ago, holding one pruned just now.
  for (const std::optional<uint64_t> held : {std::optional<uint64_t>(), {5}, {18}}) {
    const Plan plan = plan_catch_up(made.chain, held_at(made, held), 29).value();
    ASSERT_EQ(plan.hops.size(), 10U);
    EXPECT_EQ(plan.hops[0].kind, HopKind::kAnchor);
    EXPECT_EQ(plan.hops[0].version, 20U);
    EXPECT_TRUE(plan.notes.empty());
  }
  // The held version's record is gone, but the next version names it as its base.
  const Plan plan = plan_catch_up(made.chain, held_at(made, 19), 29).value();
  EXPECT_EQ(plan.hops.size(), 10U);
  EXPECT_EQ(plan.hops[0].base, 19U);
  Digest wrong = made.records[19].digest;
  wrong.bytes[0] ^= 1;
  EXPECT_EQ(plan_catch_up(made.chain, Held{19, wrong}, 29).status().code(), Code::kBaseMismatch);
  EXPECT_EQ(plan_catch_up(made.chain, {}, 7).status().code(), Code::kNotFound);
}

TEST(Plan, FallsBackToOlderAnchors) {
  TestChain made;
  std::vector<HopName> anchors;
  for (uint64_t i = 0; i < 40; ++i) {
    made.add(i == 0 ? 50 : 10);
    if (i % 10 == 5) anchors.push_back(made.add_hop({}, i, 50));
  }
  for (int gone = int(anchors.size()) - 1; gone >= 0; --gone) {
    ASSERT_TRUE(made.memory->remove(hop_name(anchors[size_t(gone)])).ok());
    const Plan plan = plan_catch_up(made.chain, {}, 39).value();
    EXPECT_EQ(plan.hops[0].version, gone == 0 ? 0U : anchors[size_t(gone) - 1].version);
    expect_sound(made, plan, {}, 39);
  }
  ASSERT_TRUE(made.memory->remove(manifest_name(0)).ok());
  EXPECT_FAILS(plan_catch_up(made.chain, {}, 39), kNotFound, "no path", "version 39");
}

TEST(Plan, MergedDeltaBridgesAMissingVersion) {
  TestChain made;
  for (int i = 0; i < 20; ++i) made.add(i == 0 ? 1'000'000 : 10);
  made.add_hop(4, 12, 500);
  ASSERT_TRUE(made.memory->remove(manifest_name(8)).ok());
  const Plan plan = plan_catch_up(made.chain, held_at(made, 2), 19).value();
  expect_sound(made, plan, 2, 19);
  EXPECT_EQ(plan.bytes, 20 + 500 + 70U);
}

// Rewrites a manifest as a forger would: its own checksums are valid.
void forge(TestChain& made, uint64_t version, const std::function<void(Manifest*)>& change) {
  Manifest m = made.chain.version(version).value().manifest;
  change(&m);
  ASSERT_TRUE(
      made.memory->put(manifest_name(version), MemoryBody(serialise_manifest(m, {}).value())).ok());
}

TEST(Plan, AvoidsListedParts) {
  TestChain made;
  made.add(1'000'000);
  for (int i = 0; i < 4; ++i) made.add(10'000);
  made.add_hop({}, 4, 1'000'000);
  made.add_hop(2, 4, 100'000);
  const auto part_of = [](uint64_t version, const char* attempt) {
    return part_folder(version, attempt) + "part-00000.safetensors";
  };
  std::set<std::string> avoid = {part_of(4, "aa")};
  const auto plan = [&](std::optional<uint64_t> held) {
    return plan_catch_up(made.chain, held_at(made, held), 4, nullptr, avoid);
  };
  // From its base version the plan uses the merged delta, else the anchor.
  EXPECT_EQ(plan(2)->hops[0].kind, HopKind::kMerged);
  ASSERT_EQ(plan(1)->hops.size(), 2U);
  EXPECT_EQ(plan(1)->hops[1].kind, HopKind::kMerged);
  EXPECT_EQ(plan(3)->hops[0].kind, HopKind::kAnchor);
  EXPECT_EQ(plan(3)->notes.size(), 1U);
  avoid.insert(part_of(4, "bb"));  // of the merged delta
  EXPECT_EQ(plan(2)->hops[0].kind, HopKind::kAnchor);
  EXPECT_EQ(plan({})->hops.size(), 1U);
  avoid.insert(full_folder(4, "bb") + "part-00000.safetensors");
  EXPECT_FAILS(plan(3), kCorruption, part_of(4, "aa"));
  EXPECT_FAILS(plan({}), kCorruption, "is damaged or missing");
}

TEST(Plan, AvoidsListedFullVersions) {
  TestChain made;
  for (const bool full : {true, false, true, false}) made.add(full ? 1000 : 10, full);
  made.add_hop(0, 3, 50);
  const Plan plan = plan_catch_up(made.chain, held_at(made, 1), 3, nullptr,
                                  {full_folder(2, "aa") + "part-00000.safetensors"})
                        .value();
  ASSERT_EQ(plan.hops.size(), 2U);  // from the seed, by the hop
  EXPECT_EQ(plan.hops[0].version, 0U);
  EXPECT_EQ(plan.hops[1].kind, HopKind::kMerged);
}

TEST(Plan, BrokenLinkWithoutAnotherPathIsCorruption) {
  struct Forgery {
    uint64_t version;
    std::function<void(Manifest*)> change;
    const char *file, *phrase;
  };
  const Forgery forgeries[] = {
      {10, [](Manifest* m) { m->parent = record_digest("other"); }, "manifests/0000000010.json",
       "parent"},
      // A replaced record: its successor has the original's digest.
      {10, [](Manifest* m) { m->publisher = "forger"; }, "manifests/0000000011.json", "parent"},
      // A wrong running total; at the head, where no successor reports it first.
      {19, [](Manifest* m) { m->chain_bytes += 7; }, "manifests/0000000019.json", "chain_bytes"},
  };
  for (const Forgery& forgery : forgeries) {
    TestChain made;
    for (int i = 0; i < 20; ++i) made.add(i == 0 ? 1'000'000 : 10);
    forge(made, forgery.version, forgery.change);
    EXPECT_FAILS(plan_catch_up(made.chain, held_at(made, 2), 19), kCorruption, forgery.file,
                 forgery.phrase);
  }
  TestChain made;
  for (int i = 0; i < 20; ++i) made.add(i == 0 ? 1'000'000 : 10);
  const std::string name = manifest_name(10);
  damage(*made.memory, name, made.memory->stat(name)->size_bytes / 2);
  EXPECT_FAILS(plan_catch_up(made.chain, held_at(made, 2), 19), kCorruption, name);
  // With another path, the plan takes it and notes why.
  made.add_hop(8, 12, 50'000);
  const Plan plan = plan_catch_up(made.chain, held_at(made, 2), 19).value();
  expect_sound(made, plan, 2, 19);
  ASSERT_EQ(plan.notes.size(), 1U);
  EXPECT_TRUE(contains(plan.notes[0], name));
}

TEST(Plan, IgnoresHostileHops) {
  const auto fresh = [] {
    auto made = std::make_unique<TestChain>();
    for (int i = 0; i < 20; ++i) made->add(i == 0 ? 1'000'000 : 10'000);
    made->add_hop(4, 12, 30'000);  // an honest one, that must stay in use
    return made;
  };
  const uint64_t honest = 20'000 + 30'000 + 70'000;
  struct Attack {
    const char* what;
    std::function<void(HopName*, HopRecord*)> forge;
  };
  const Attack attacks[] = {
      {"says less in its name", [](HopName* name, HopRecord*) { name->bytes = 1; }},
      {"sums below", [](HopName* name, HopRecord*) { name->base_chain_bytes -= 9; }},
      {"sums above", [](HopName* name, HopRecord*) { name->chain_bytes += 9; }},
      {"another base", [](HopName* name, HopRecord*) { name->base = 3; }},
      {"another version", [](HopName* name, HopRecord*) { name->version = 17; }},
      {"another run", [](HopName*, HopRecord* hop) { hop->run = std::string(32, '0'); }},
      {"another manifest", [](HopName*, HopRecord* hop) { hop->manifest = record_digest("x"); }},
      {"another base manifest",
       [](HopName*, HopRecord* hop) { hop->base_manifest = record_digest("x"); }},
      {"parts elsewhere", [](HopName*, HopRecord* hop) { hop->parts[0].name = "full/x"; }},
      {"parts outside", [](HopName*, HopRecord* hop) { hop->parts[0].name = "parts/../../x"; }},
  };
  for (const Attack& attack : attacks) {
    const auto made = fresh();
    HopRecord hop = made->hop_record(5, 16, 100);
    HopName name = made->name_of(5, 16, 100);
    attack.forge(&name, &hop);
    made->put_hop(name, hop);
    const Result<Plan> plan = plan_catch_up(made->chain, held_at(*made, 2), 19);
    ASSERT_TRUE(plan.ok()) << attack.what << ": " << plan.status().to_string();
    expect_sound(*made, *plan, 2, 19);
    EXPECT_EQ(plan->bytes, honest) << attack.what;
    EXPECT_EQ(plan->notes.size(), 1U) << attack.what;
  }
  // Control: a valid hop record of the same span is used.
  const auto made = fresh();
  made->add_hop(5, 16, 100);
  EXPECT_EQ(plan_catch_up(made->chain, held_at(*made, 2), 19)->bytes, 30'000 + 100 + 30'000U);
}

TEST(Plan, ManifestDecidesBetweenConflictingHops) {
  TestChain made;
  for (int i = 0; i < 20; ++i) made.add(i == 0 ? 1'000'000 : 10'000);
  made.add_hop(2, 8, 100);
  HopRecord hop = made.hop_record(8, 14, 100);
  hop.base_manifest = record_digest("x");
  made.put_hop(made.name_of(8, 14, 100), hop);
  const Plan plan = plan_catch_up(made.chain, held_at(made, 2), 19).value();
  expect_sound(made, plan, 2, 19);
  EXPECT_EQ(plan.bytes, 100 + 110'000U);
  ASSERT_EQ(plan.notes.size(), 1U);
  EXPECT_TRUE(contains(plan.notes[0], "hops/0000000014"));
}

TEST(Plan, IgnoresInvalidHopNames) {
  for (const char* name :
       {"hops/", "hops/x", "hops/0000000016.json", "hops/0000000016-0000000005.json",
        "hops/0000000016-0000000005-00000000000064-00000000000000-0000000000000.json",
        "hops/0000000016-0000000016-00000000000064-00000000000000-00000000000000.json",
        "hops/0000000016-0000000020-00000000000064-00000000000000-00000000000000.json",
        "hops/0000000016-0000000005-00000000000064-00000000000001-00000000000000.json",
        "hops/0000000016-full-00000000000064-00000000000001-00000000000001.json",
        "hops/0000000016-0000000005-0000000000006A-00000000000000-00000000000000.json",
        "hops/0000000016-0000000005-00000000000064-00000000000000-00000000000000.json.json",
        "hops/-000000016-0000000005-00000000000064-00000000000000-00000000000000.json",
        "hops/+000000016-0000000005-00000000000064-00000000000000-00000000000000.json",
        "hops/0000000016-0000000005--0000000000064-00000000000000-00000000000000.json"}) {
    EXPECT_FALSE(parse_hop_name(name).has_value()) << name;
  }
  TestChain made;
  for (int i = 0; i < 20; ++i) made.add(i == 0 ? 1'000'000 : 10);
  ASSERT_TRUE(made.memory->put("hops/zzz", MemoryBody(std::string_view())).ok());
  ASSERT_TRUE(made.memory->put("hops/0000000007", MemoryBody(std::string_view())).ok());
  EXPECT_EQ(plan_catch_up(made.chain, held_at(made, 2), 19)->bytes, 170U);
}

TEST(Plan, ReportsStoreFailures) {
  TestChain made;
  for (int i = 0; i < 20; ++i) made.add(i == 0 ? 1'000'000 : 10);
  made.add_hop(4, 12, 20);
  made.hooks->requests = 0;
  const uint64_t without_schema = [&] {
    const Chain chain = Chain::open(made.hooks, {}).value();
    made.hooks->requests = 0;
    EXPECT_TRUE(plan_catch_up(chain, held_at(made, 2), 19).ok());
    return made.hooks->requests - 1;
  }();
  for (uint64_t n = 0; n < without_schema; ++n) {
    std::atomic<uint64_t> left = n;
    made.hooks->before = [&](std::string_view, std::string_view) {
      return left-- == 0 ? unavailable("injected") : Status();
    };
    EXPECT_EQ(plan_catch_up(made.chain, held_at(made, 2), 19).status().code(), Code::kUnavailable)
        << n;
  }
}

TEST(Plan, PathDoesNotDependOnInsertionOrder) {
  PlanGraph graph;
  graph.start_at({5, 100});
  graph.add_hop({9, 7, 10, 140, 180});
  graph.add_hop({7, {}, 10, 0, 140});
  const auto path = graph.cheapest({9, 180});
  ASSERT_TRUE(path.has_value());
  ASSERT_EQ(path->size(), 2U);
  EXPECT_EQ((*path)[0].hop, 1U);
  EXPECT_EQ((*path)[1].hop, 0U);
  graph.drop(1);
  ASSERT_EQ(graph.cheapest({9, 180})->size(), 2U);
  EXPECT_FALSE(graph.cheapest({9, 180})->front().hop.has_value());
  graph.cut(6);
  EXPECT_FALSE(graph.cheapest({9, 180}).has_value());
}

// ---- Cost does not grow with the length of the chain: requests with 100,000 versions.

constexpr uint64_t kVersions = 100'000;
constexpr uint64_t kWhole = 1'000'000'000, kDelta = 10'000'000;
constexpr uint64_t kBound = 64;

// Anchors every 256 versions, merged deltas of 4, 16 and 64 between them.
const TestChain& long_chain() {
  static const TestChain* const made = [] {
    auto* chain = new TestChain;
    for (uint64_t v = 0; v < kVersions; ++v) {
      chain->add(v == 0 ? kWhole : kDelta);
      if (v % 256 == 0 && v != 0) chain->add_hop({}, v, kWhole);
      for (const uint64_t span : {4, 16, 64}) {
        if (v != 0 && v % span == 0) chain->add_hop(v - span, v, kDelta * span * 3 / 4);
      }
    }
    return chain;
  }();
  return *made;
}

uint64_t requests_of(const std::function<void()>& work) {
  long_chain().hooks->requests = 0;
  work();
  return long_chain().hooks->requests;
}

TEST(LongChainSlow, FindsTheHeadInFewRequests) {
  DW_LABEL(slow);
  const TestChain& made = long_chain();
  EXPECT_LE(requests_of([&] { EXPECT_EQ(made.chain.head().value(), kVersions - 1); }), 4U);
  for (const char* hint : {"0", "99990", "50000", "100000", "9999999999", "x"}) {
    ASSERT_TRUE(made.memory->put(kHeadName, MemoryBody(hint)).ok());
    EXPECT_LE(requests_of([&] { EXPECT_EQ(made.chain.head().value(), kVersions - 1); }), kBound)
        << hint;
  }
  ASSERT_TRUE(made.memory->put(kHeadName, MemoryBody("99999")).ok());
}

TEST(LongChainSlow, PlansACatchUpInFewRequests) {
  DW_LABEL(slow);
  const TestChain& made = long_chain();
  const uint64_t head = kVersions - 1;
  for (const std::optional<uint64_t> held :
       {std::optional<uint64_t>(), {0}, {1}, {50'000}, {99'000}, {99'700}, {99'990}, {head - 1}}) {
    std::optional<Held> start;
    if (held) start = made.held(*held);
    uint64_t hops = 0, bytes = 0;
    const uint64_t requests = requests_of([&] {
      const Plan plan = plan_catch_up(made.chain, start, head).value();
      hops = plan.hops.size();
      bytes = plan.bytes;
    });
    EXPECT_LE(requests, kBound) << "from " << held.value_or(0);
    EXPECT_LE(requests, hops + 10) << "from " << held.value_or(0);
    EXPECT_LE(bytes, kWhole + 256 * kDelta);
  }
}

}  // namespace
}  // namespace deltawire::testing
