// Ranks over a store that others can write to: what they did not sign is not believed.
#include <gtest/gtest.h>

#include <mutex>
#include <thread>

#include "chain/keys.h"
#include "chain/names.h"
#include "publish/ranks_record.h"
#include "support/hooked_store.h"
#include "support/shard.h"

namespace deltawire {
namespace {

using testing::head_of;
using testing::holds;
using testing::HookedStore;
using testing::is_failure;
using testing::Model;
using testing::Shard;
using testing::TempFolder;

class SignedRanksTest : public ::testing::Test {
 protected:
  static constexpr unsigned kWorld = 3;
  using Results = std::vector<std::optional<Result<PublishReport>>>;

  TempFolder folder;
  std::shared_ptr<HookedStore> store = std::make_shared<HookedStore>();
  Model model = Model::make();
  std::vector<std::optional<Publisher>> publishers{kWorld};
  std::optional<unsigned> keyless;  // this rank has no key
  bool full = false;
  double timeout = 60;

  SignedRanksTest() {
    for (const char* name : {"ours", "theirs"}) {
      EXPECT_TRUE(make_key_files(folder.path() / name).ok());
    }
  }
  Signer signer(const char* name) { return make_signer(folder.path() / name).value(); }

  Results publish() {
    Results results(kWorld);
    std::vector<std::thread> threads;
    for (unsigned rank = 0; rank < kWorld; ++rank) {
      threads.emplace_back([&, rank] {
        if (!publishers[rank]) {
          PublishOptions options;
          options.limits.threads = 1;
          options.ranks.rank = rank;
          options.ranks.world = kWorld;
          if (full) options.anchors = OnlyAnchors{};
          options.ranks.timeout_seconds = timeout;
          if (rank != keyless) options.keys.sign = folder.path() / "ours";
          publishers[rank].emplace(Publisher::open(store, options).value());
        }
        results[rank].emplace(publishers[rank]->publish(Shard(model, rank, kWorld).views()));
      });
    }
    for (std::thread& thread : threads) thread.join();
    return results;
  }
  void expect_version(uint64_t version) {
    for (const auto& result : publish()) {
      ASSERT_TRUE((*result).ok()) << (*result).status().to_string();
      EXPECT_EQ((*result)->version, version);
    }
    EXPECT_TRUE(holds(store, version, model));
  }
  // Whoever can write to the store has changed objects of this name before anybody reads them.
  void change(const std::string& ending, const std::function<std::string(std::string)>& how) {
    store->rewrite = [this, ending, how](std::string_view name, std::string text) {
      if (!name.ends_with(ending)) return text;
      const std::lock_guard lock(mutex_);
      return how(std::move(text));
    };
  }
  // All fail, rank 0 with this.
  template <class... Phrases>
  void expect_refused(const Phrases&... phrases) {
    const auto head = head_of(store);
    const Results results = publish();
    store->rewrite = nullptr;
    EXPECT_TRUE(is_failure((*results[0]).status(), Code::kCorruption, phrases...));
    for (unsigned rank = 1; rank < kWorld; ++rank) {
      EXPECT_TRUE(is_failure((*results[rank]).status(), Code::kCancelled, phrases...)) << rank;
    }
    EXPECT_EQ(head_of(store), head);
  }

 private:
  std::mutex mutex_;
};

TEST_F(SignedRanksTest, TheyPublishAndEveryRecordIsSigned) {
  std::mutex mutex;
  std::vector<std::string> unsigned_records;
  store->after_put = [&](std::string_view name) -> Status {
    if (!name.starts_with(kPendingPrefix) || !name.ends_with(".json")) return {};
    const std::string text = store->get(name, 1 << 26).value();
    const std::lock_guard lock(mutex);
    if (text.find("\"signature\"") == std::string::npos) unsigned_records.emplace_back(name);
    return {};
  };
  expect_version(0);
  model.step();
  expect_version(1);
  for (const auto& result : publish()) EXPECT_FALSE((*result)->committed);
  EXPECT_TRUE(unsigned_records.empty()) << unsigned_records[0];
}

// The report of a rank with weights of the attacker's choice: it would be signed by rank 0.
TEST_F(SignedRanksTest, AReportThatWasReplacedIsRefused) {
  expect_version(0);
  const auto forge = [](const Signer& sign) {
    return [sign](const std::string& text) {
      RankReport report = parse_report(text, {}).value();
      for (PartRef& part : report.record.parts) part.sha256 = digest_of(DigestKind::kSha256, {});
      return serialise_report(report, sign).value();
    };
  };
  model.step();
  change("rank-00002.json", forge({}));
  expect_refused("rank-00002.json", "signature: expected one by a trusted key, got none");
  model.step();
  change("rank-00002.json", forge(signer("theirs")));
  expect_refused("rank-00002.json", "which is not trusted");
  model.step();
  expect_version(1);
}

TEST_F(SignedRanksTest, AReportOfAnotherAttemptRankOrVersionIsRefused) {
  expect_version(0);
  model.step();
  std::string of_rank_1, of_rank_2;
  change("rank-00001.json", [&](const std::string& text) { return of_rank_1 = text; });
  expect_version(1);
  change("rank-00002.json", [&](const std::string& text) { return of_rank_2 = text; });
  model.step();
  expect_version(2);
  model.step();
  change("rank-00001.json", [&](const std::string&) { return of_rank_1; });
  expect_refused("rank-00001.json", "belongs to version 1, expected 3");
  // What was reported to the attempt that was just given up.
  std::string given_up;
  model.step();
  change("rank-00001.json", [&](const std::string& text) {
    given_up = text;
    return of_rank_2;
  });
  expect_refused("rank-00001.json", "belongs to version 2, expected 3");
  model.step();
  change("rank-00001.json", [&](const std::string&) { return given_up; });
  expect_refused("rank-00001.json", "belongs to attempt");
  model.step();
  change("rank-00001.json", [&](const std::string& text) {
    RankReport report = parse_report(text, {}).value();
    report.rank = 2;
    return serialise_report(report, signer("ours")).value();
  });
  expect_refused("rank-00001.json", "belongs to rank 2, expected 1");
  model.step();
  expect_version(3);
}

TEST_F(SignedRanksTest, BoxesThatWereReplacedAreRefused) {
  full = true;
  const auto flip = [](std::string text) {
    text[text.size() / 2] ^= 1;
    return text;
  };
  change("rank-00002.boxes", flip);
  const Results results = publish();
  store->rewrite = nullptr;
  EXPECT_TRUE(is_failure((*results[0]).status(), Code::kCorruption, "rank-00002.boxes",
                         "sha-256 of block 0"));
  EXPECT_EQ(head_of(store), std::nullopt);
  expect_version(0);
  model.step();
  change("rank-00001.boxes", flip);
  expect_refused("rank-00001.boxes", "sha-256 of block 0");
  expect_version(1);
}

TEST_F(SignedRanksTest, WhatRankZeroDidNotSignIsNotFollowed) {
  timeout = 6;
  expect_version(0);
  model.step();
  change("begin.json", [](const std::string& text) {
    return serialise_begin(parse_begin(text, {}).value(), {}).value();
  });
  Results results = publish();
  store->rewrite = nullptr;
  for (unsigned rank = 1; rank < kWorld; ++rank) {
    EXPECT_TRUE(is_failure((*results[rank]).status(), Code::kCorruption, "begin.json", "got none"));
  }
  EXPECT_TRUE(is_failure((*results[0]).status(), Code::kUnavailable, "nothing from ranks 1, 2"));
  // Nobody reads the forged record once more.
  EXPECT_TRUE(store->inner().remove(begin_name(1)).ok());
  // Nor is anybody told that nothing changed who does not have that from rank 0.
  model.step();
  change(".json", [&](const std::string& text) {
    const auto begin = parse_begin(text, {});
    if (!begin.ok()) return text;
    const RankDone done{begin->of, ranks::Ending::kUnchanged, "", {"", "", ""}};
    const std::string forged = serialise_done(done, {}).value();
    EXPECT_TRUE(store->inner()
                    .put(done_name(begin->of.version, begin->of.attempt), MemoryBody(forged))
                    .ok());
    return text;
  });
  results = publish();
  store->rewrite = nullptr;
  for (unsigned rank = 1; rank < kWorld; ++rank) {
    EXPECT_TRUE(is_failure((*results[rank]).status(), Code::kCorruption, "done.json", "got none"));
  }
  EXPECT_EQ(head_of(store), 0);
  model.step();
  expect_version(1);
}

TEST_F(SignedRanksTest, ARankWithoutTheKeyIsRefused) {
  keyless = 1;
  const Results results = publish();
  EXPECT_TRUE(is_failure((*results[0]).status(), Code::kCorruption, "rank-00001", "got none"));
  EXPECT_EQ(head_of(store), std::nullopt);
  keyless.reset();
  for (auto& publisher : publishers) publisher.reset();
  expect_version(0);
}

}  // namespace
}  // namespace deltawire
