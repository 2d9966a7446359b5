#include "chain/chain.h"

#include "chain/names.h"
#include "made_chain.h"
#include "test_files.h"

namespace deltawire::testing {
namespace {

TEST(Chain, OneRunPerStore) {
  auto store = std::make_shared<MemoryStore>("x");
  EXPECT_FAILS(Chain::open(store, {}), Code::kNotFound, "memory:x", "no run");
  const Chain chain = create_chain(store, {}, false).value();
  EXPECT_EQ(Chain::open(store, {}).value().run(), chain.run());
  EXPECT_EQ(create_chain(store, {}, false).status().code(), Code::kConflict);
  EXPECT_FALSE(chain.head().value().has_value());
}

TEST(Chain, TheHeadIsFoundFromAnyHint) {
  MadeChain made;
  for (int i = 0; i < 40; ++i) made.add(10);
  EXPECT_EQ(made.chain.head().value(), 39U);
  for (const char* hint : {"0\n", "17\n", "38", "39\n", "40\n", "9999999999\n", "99999999999\n", "",
                           "x", "-1", "18446744073709551616"}) {
    ASSERT_TRUE(made.memory->put(kHeadName, MemoryBody(std::string_view(hint))).ok());
    EXPECT_EQ(made.chain.head().value(), 39U) << hint;
  }
  ASSERT_TRUE(made.memory->remove(kHeadName).ok());
  EXPECT_EQ(made.chain.head().value(), 39U);
}

TEST(Chain, HolesThatRetentionLeftDoNotHideTheHead) {
  MadeChain made;
  for (int i = 0; i < 40; ++i) made.add(10);
  for (uint64_t v : {0, 1, 2, 3, 6, 7, 8, 9, 10}) {
    ASSERT_TRUE(made.memory->remove(manifest_name(v)).ok());
  }
  for (const char* hint : {"5", "4", "7", "0"}) {  // an old publisher's, late
    ASSERT_TRUE(made.memory->put(kHeadName, MemoryBody(std::string_view(hint))).ok());
    EXPECT_EQ(made.chain.head().value(), 39U) << hint;
  }
}

// A listing that does not show what was put a moment ago.
TEST(Chain, AListingThatLagsDoesNotHideTheHead) {
  MadeChain made;
  for (int i = 0; i < 40; ++i) made.add(10);
  for (const uint64_t shown : {0, 1, 20, 39}) {
    made.store->after_list = [&](std::vector<ObjectInfo>* page) {
      std::erase_if(*page, [&](const ObjectInfo& object) {
        return version_of_manifest(object.name).value_or(0) >= shown;
      });
    };
    for (const char* hint : {"0", "10", "38", "39"}) {
      ASSERT_TRUE(made.memory->put(kHeadName, MemoryBody(std::string_view(hint))).ok());
      EXPECT_EQ(made.chain.head().value(), 39U) << shown << ", " << hint;
    }
  }
}

TEST(Chain, WhatComesNextIsSeenInOneRound) {
  MadeChain made;
  for (int i = 0; i < 6; ++i) made.add(10);
  made.store->requests = 0;
  auto newest = made.chain.newest_after(5);
  ASSERT_TRUE(newest.ok()) << newest.status().to_string();
  EXPECT_EQ(newest->version, 5);
  EXPECT_FALSE(newest->record.has_value());
  EXPECT_EQ(made.store->requests, 4);
  made.store->requests = 0;
  newest = made.chain.newest_after(4);
  ASSERT_TRUE(newest.ok());
  EXPECT_EQ(newest->version, 5);
  ASSERT_TRUE(newest->record.has_value());
  EXPECT_EQ(newest->record->digest, made.versions[5].digest);
  EXPECT_EQ(made.store->requests, 4);
  for (const uint64_t known : {0, 1, 2, 3, 6, 7, 100}) {
    newest = made.chain.newest_after(known);
    ASSERT_TRUE(newest.ok());
    EXPECT_EQ(newest->version, 5) << known;
  }
}

TEST(Chain, WhatComesNextIsSeenThoughListingsAreBehind) {
  MadeChain made;
  for (int i = 0; i < 6; ++i) made.add(10);
  for (size_t shown = 0; shown < 6; ++shown) {
    made.store->after_list = [&](std::vector<ObjectInfo>* page) {
      std::erase_if(*page, [&](const ObjectInfo& object) {
        return version_of_manifest(object.name).value_or(0) > shown;
      });
    };
    for (uint64_t known = 0; known < 6; ++known) {
      const auto newest = must(made.chain.newest_after(known));
      EXPECT_EQ(newest.version, 5) << known << ", " << shown;
    }
  }
}

TEST(Chain, WhatComesNextIsSeenBehindHolesAndDamage) {
  MadeChain made;
  for (int i = 0; i < 8; ++i) made.add(10);
  for (int v = 2; v < 6; ++v) ASSERT_TRUE(made.memory->remove(manifest_name(v)).ok());
  for (const uint64_t known : {1, 3}) {  // pinned, and pruned itself
    const auto newest = must(made.chain.newest_after(known));
    EXPECT_EQ(newest.version, 7) << known;
  }
  ASSERT_TRUE(made.memory->put(manifest_name(7), MemoryBody(std::string_view("{}"))).ok());
  const auto newest = must(made.chain.newest_after(6));
  EXPECT_EQ(newest.version, 7);
  EXPECT_FALSE(newest.record.has_value());
  made.store->before = [](std::string_view call, std::string_view) {
    return call == "list" ? unavailable("told so") : Status();
  };
  EXPECT_FAILS(made.chain.newest_after(6), Code::kUnavailable);
}

TEST(Chain, AVersionIsCommittedOnce) {
  MadeChain made;
  made.add(10);
  Manifest mine = made.next(5, false), theirs = mine;
  theirs.publisher = "other:2";
  ASSERT_TRUE(commit_version(made.chain, theirs).ok());
  EXPECT_FAILS(commit_version(made.chain, mine).status, Code::kConflict, "version 1", "other:2",
               "2026-11-15");
  // The same record again is a retry, not a race.
  EXPECT_TRUE(commit_version(made.chain, theirs).ok());
}

TEST(Chain, ARecordInTheWrongPlaceIsRefused) {
  MadeChain made;
  for (int i = 0; i < 3; ++i) made.add(10);
  const std::string one = made.memory->get(manifest_name(1), 1 << 20).value();
  ASSERT_TRUE(made.memory->put(manifest_name(2), MemoryBody(one)).ok());
  EXPECT_FAILS(made.chain.version(2), Code::kCorruption, "manifests/0000000002.json", "version 1");
  MadeChain other;
  other.add(10);
  const std::string foreign = other.memory->get(manifest_name(0), 1 << 20).value();
  ASSERT_TRUE(made.memory->put(manifest_name(0), MemoryBody(foreign)).ok());
  EXPECT_FAILS(made.chain.version(0), Code::kCorruption, other.chain.run());
  Manifest outside = made.next(5, false);
  for (const char* name : {"full/x", "parts", "manifests/0000000000.json", "../x", "parts/../x",
                           "/etc/passwd", "parts//x"}) {
    outside.parts[0].name = name;
    outside.version = 3;
    ASSERT_TRUE(
        made.memory->put(manifest_name(3), MemoryBody(serialise_manifest(outside, {}).value()))
            .ok());
    EXPECT_FAILS(made.chain.version(3), Code::kCorruption) << name;
  }
}

}  // namespace
}  // namespace deltawire::testing
