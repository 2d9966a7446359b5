// Ranks of a sharded trainer: one version out of the boxes of all, or none.
#include <gtest/gtest.h>

#include <thread>

#include "chain/names.h"
#include "hooked_store.h"
#include "published_model.h"
#include "store/directory_store.h"
#include "sync/publisher/ranks.h"

namespace deltawire {
namespace {

using testing::head_of;
using testing::holds;
using testing::HookedStore;
using testing::is_failure;
using testing::make_tensor;
using testing::Model;
using testing::objects_of;
using testing::TempFolder;
using testing::TestTensor;

// What one rank of a model split over `world` holds: rows of most matrices, columns of one, and
// whole vectors on some rank.
class Shard {
 public:
  Shard(const Model& model, unsigned rank, unsigned world) {
    for (size_t i = 0; i < model.tensors.size(); ++i) {
      const TestTensor& tensor = model.tensors[i];
      if (tensor.shape.size() < 2) {
        if (i % world == rank)
          views_.push_back({{tensor.name, tensor.dtype, tensor.shape, tensor.bytes}, {}});
        continue;
      }
      const size_t split = tensor.name == "layer.0.up" ? 1 : 0;
      Box box{Shape(tensor.shape.size(), 0), tensor.shape};
      const uint64_t begin = tensor.shape[split] * rank / world;
      box.offset[split] = begin;
      box.extent[split] = tensor.shape[split] * (rank + 1) / world - begin;
      auto contents = std::make_unique<std::vector<uint8_t>>(
          tensor_size_bytes(tensor.dtype, box.extent).value());
      copy_box_out(box, tensor.dtype, tensor.shape, tensor.bytes, *contents);
      views_.push_back({{tensor.name, tensor.dtype, tensor.shape, *contents}, box});
      contents_.push_back(std::move(contents));
    }
  }
  const std::vector<PublishTensor>& views() const { return views_; }

 private:
  std::vector<std::unique_ptr<std::vector<uint8_t>>> contents_;
  std::vector<PublishTensor> views_;
};

class RanksTest : public ::testing::Test {
 protected:
  static constexpr unsigned kWorld = 4;
  std::shared_ptr<Store> store = std::make_shared<HookedStore>();
  Model model = Model::make();
  PublishOptions options;
  std::vector<std::optional<Publisher>> publishers{kWorld};

  RanksTest() {
    options.threads = 1;
    options.world = kWorld;
    options.rank_timeout_seconds = 60;
  }

  using Results = std::vector<std::optional<Result<PublishReport>>>;
  // All ranks but `missing` publish the model at once.
  Results publish(std::optional<unsigned> missing = {}) {
    Results results(kWorld);
    std::vector<std::thread> threads;
    for (unsigned rank = 0; rank < kWorld; ++rank) {
      if (rank == missing) continue;
      threads.emplace_back([&, rank] {
        if (!publishers[rank]) {
          PublishOptions own = options;
          own.rank = rank;
          auto opened = Publisher::open(store, {}, own);
          if (!opened.ok()) {
            results[rank].emplace(opened.status());
            return;
          }
          publishers[rank].emplace(std::move(*opened));
        }
        results[rank].emplace(publishers[rank]->publish(Shard(model, rank, kWorld).views()));
      });
    }
    for (std::thread& thread : threads) thread.join();
    return results;
  }
  void expect_version(uint64_t version, const Results& results, bool full = false) {
    for (const auto& result : results) {
      ASSERT_TRUE((*result).ok()) << (*result).status().to_string();
      const PublishReport& report = **result;
      EXPECT_EQ(report.version, version);
      EXPECT_TRUE(report.committed);
      EXPECT_EQ(report.full, full);
      EXPECT_TRUE(report.warnings.empty());
    }
    EXPECT_TRUE(holds(store, version, model));
    EXPECT_TRUE(objects_of(*store, kPendingPrefix).empty());
  }
};

TEST_F(RanksTest, TogetherTheyPublishWhatOneWould) {
  expect_version(0, publish(), true);
  for (uint64_t version = 1; version <= 3; ++version) {
    model.step();
    expect_version(version, publish());
  }
  // One process alone reads the same state and goes on from it.
  auto alone = Publisher::open(store, {}, {});
  ASSERT_TRUE(alone.ok());
  EXPECT_FALSE(alone->publish(model.views())->committed);
  model.step();
  EXPECT_EQ(alone->publish(model.views())->version, 4);
  EXPECT_TRUE(holds(store, 4, model));
}

TEST_F(RanksTest, ASeedOfOneProcessIsGoneOnWithBoxes) {
  auto alone = Publisher::open(store, {}, {});
  ASSERT_TRUE(alone->publish(model.views()).ok());
  model.step();
  expect_version(1, publish());
  // Nothing of a tensor changed: it keeps its digest, boxes or not.
  const auto chain = Chain::open(store, {});
  const Manifest manifest = chain->version(1)->manifest;
  EXPECT_TRUE(manifest.boxes.contains("embed"));
  EXPECT_FALSE(manifest.boxes.contains("tables"));
}

TEST_F(RanksTest, ARankMayHoldNothing) {
  for (uint64_t version = 0; version < 3; ++version) {
    std::vector<std::thread> threads;
    for (unsigned rank = 0; rank < kWorld; ++rank) {
      threads.emplace_back([&, rank] {
        PublishOptions own = options;
        own.rank = rank;
        if (!publishers[rank]) publishers[rank].emplace(Publisher::open(store, {}, own).value());
        const Shard shard(model, std::min(rank, 2U), 3);
        const bool none = rank == 2;  // what would be its part is the last rank's
        const auto report =
            publishers[rank]->publish(none ? std::vector<PublishTensor>() : shard.views());
        EXPECT_TRUE(report.ok()) << report.status().to_string();
        EXPECT_EQ(report->version, version);
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_TRUE(holds(store, version, model));
    model.step();
  }
}

TEST_F(RanksTest, InADirectory) {
  TempFolder folder;
  store = std::make_shared<DirectoryStore>(folder.path() / "store");
  expect_version(0, publish(), true);
  model.step();
  expect_version(1, publish());
}

TEST_F(RanksTest, NothingChangedIsNoVersion) {
  publish();
  for (int i = 0; i < 3; ++i) {
    for (const auto& result : publish()) {
      ASSERT_TRUE((*result).ok()) << (*result).status().to_string();
      EXPECT_FALSE((*result)->committed);
      EXPECT_EQ((*result)->version, 0);
    }
  }
  model.step();
  expect_version(1, publish());
}

TEST_F(RanksTest, TensorsComeAndGo) {
  publish();
  model.tensors.erase(model.tensors.begin() + 3);                         // whole, on one rank
  model.tensors.push_back(make_tensor("vector", DType::kF32, {12}, 31));  // whole, on one rank
  expect_version(1, publish());
  // In boxes it cannot be told as a delta.
  model.tensors.push_back(make_tensor("zz.new", DType::kBF16, {16, 8}, 32));
  const Results results = publish();
  expect_version(2, results, true);
  EXPECT_TRUE((*results[0])->reason.starts_with("schema: tensor \"zz.new\""))
      << (*results[0])->reason;
  model.step();
  expect_version(3, publish());
}

TEST_F(RanksTest, DenseChangesArePublishedWhole) {
  publish();
  std::mt19937_64 random(5);
  for (TestTensor& tensor : model.tensors) {
    for (uint8_t& byte : tensor.bytes) byte = uint8_t(random());
  }
  const Results results = publish();
  expect_version(1, results, true);
  EXPECT_TRUE((*results[3])->reason.starts_with("dense: "));
}

TEST_F(RanksTest, AMissingRankIsATimeoutAndNoVersion) {
  expect_version(0, publish(), true);
  const Model seed = model;
  model.step();
  options.rank_timeout_seconds = 0.5;
  publishers[0].reset();
  const Results results = publish(2);
  EXPECT_TRUE(is_failure((*results[0]).status(), Code::kUnavailable, "version 1: nothing from rank",
                         "2", "nothing was committed"));
  for (const unsigned rank : {1U, 3U}) {
    EXPECT_TRUE(is_failure((*results[rank]).status(), Code::kCancelled, "rank 0 gave up version 1",
                           "nothing from rank"));
  }
  EXPECT_EQ(head_of(store), 0);
  EXPECT_TRUE(holds(store, 0, seed));
  // All are back, those that had failed with what they held.
  options.rank_timeout_seconds = 60;
  publishers[0].reset();
  publishers[2].reset();
  model.step();
  expect_version(1, publish());
}

TEST_F(RanksTest, TheMissingAreNamed) {
  publish();
  const auto chain = Chain::open(store, {});
  options.rank_timeout_seconds = 0;
  RankExchange exchange(*chain, 1, options);
  const RankBegin begin{chain->run(), 1, "0123456789ab", kWorld, false, ""};
  ASSERT_TRUE(exchange.announce(begin).ok());
  EXPECT_TRUE(is_failure(exchange.collect(begin).status(), Code::kUnavailable,
                         "nothing from ranks 1, 2, 3 of 4 within 0 s"));
  RankReport report;
  for (const unsigned rank : {1U, 3U}) {
    report.rank = rank;
    ASSERT_TRUE(exchange.report(begin, report).ok());
  }
  EXPECT_TRUE(is_failure(exchange.collect(begin).status(), Code::kUnavailable,
                         "nothing from rank 2 of 4 within 0 s"));
  report.rank = 2;
  ASSERT_TRUE(exchange.report(begin, report).ok());
  EXPECT_EQ(exchange.collect(begin)->size(), 3);
}

TEST_F(RanksTest, MissingRankZeroIsATimeout) {
  options.rank_timeout_seconds = 0.3;
  const Results results = publish(0);
  for (const unsigned rank : {1U, 2U, 3U}) {
    EXPECT_TRUE(is_failure((*results[rank]).status(), Code::kUnavailable, "rank 0"));
  }
  EXPECT_EQ(head_of(store), std::nullopt);
}

TEST_F(RanksTest, ARankThatFailsIsNamedAtOnce) {
  publish();
  model.step();
  auto* hooked = static_cast<HookedStore*>(store.get());
  std::atomic<int> left{1};
  hooked->before_put = [&](std::string_view name) {
    return name.starts_with(kPartPrefix) && left-- == 1 ? io_error("disk full") : Status();
  };
  const Results results = publish();
  size_t named = 0;
  for (const auto& result : results) {
    ASSERT_FALSE((*result).ok());
    named += (*result).status().message().find("disk full") != std::string::npos;
  }
  EXPECT_EQ(named, kWorld) << "every rank hears why";
  EXPECT_EQ(head_of(store), 0);
  hooked->before_put = nullptr;
  expect_version(1, publish());
}

TEST_F(RanksTest, AFailureIsHeardByThoseWhoComeLate) {
  publish();
  model.step();
  const auto chain = Chain::open(store, {});
  RankExchange exchange(*chain, 1, options);
  for (const std::string& attempt : {std::string("0123456789ab"), std::string("ab0123456789")}) {
    const RankBegin begin{chain->run(), 1, attempt, kWorld, false, ""};
    ASSERT_TRUE(exchange.announce(begin).ok());
    exchange.end(begin, {false, "attempt " + attempt, {}});
  }
  // One publish of theirs for each that failed, whatever was announced since.
  std::set<std::string> heard;
  for (int i = 0; i < 2; ++i) {
    const Results results = publish(0);
    for (const unsigned rank : {1U, 2U, 3U}) {
      EXPECT_TRUE(is_failure((*results[rank]).status(), Code::kCancelled, "attempt "));
      heard.insert((*results[rank]).status().message());
    }
  }
  EXPECT_EQ(heard.size(), 2);
  // A process that comes after them has missed nothing.
  publishers[3].reset();
  expect_version(1, publish());
}

TEST_F(RanksTest, ACommitThatFailsIsHeardByAll) {
  publish();
  model.step();
  options.hook_before_commit = "exit 1";
  publishers[0].reset();
  const Results results = publish();
  for (const auto& result : results) {
    EXPECT_TRUE(is_failure((*result).status(), Code::kCancelled, "hook before the commit"));
  }
  EXPECT_EQ(head_of(store), 0);
  options.hook_before_commit = "";
  publishers[0].reset();
  expect_version(1, publish());
}

TEST_F(RanksTest, BoxesThatOverlapOrLeaveHolesAreRefusedByRank) {
  std::vector<std::optional<Result<PublishReport>>> results(2);
  const TestTensor tensor = make_tensor("t", DType::kBF16, {8, 4}, 1);
  const auto run = [&](const Box& first, const Box& second) {
    std::vector<std::thread> threads;
    for (unsigned rank = 0; rank < 2; ++rank) {
      threads.emplace_back([&, rank] {
        PublishOptions own = options;
        own.world = 2;
        own.rank = rank;
        auto publisher = Publisher::open(store, {}, own);
        const Box& box = rank == 0 ? first : second;
        std::vector<uint8_t> contents(tensor_size_bytes(tensor.dtype, box.extent).value());
        const PublishTensor piece{{tensor.name, tensor.dtype, tensor.shape, contents}, box};
        results[rank].emplace(publisher->publish({&piece, 1}));
      });
    }
    for (std::thread& thread : threads) thread.join();
  };
  run({{0, 0}, {5, 4}}, {{4, 0}, {4, 4}});
  EXPECT_TRUE(is_failure((*results[0]).status(), Code::kInvalidArgument, "\"t\"", "(rank 0)",
                         "(rank 1)", "overlap"));
  run({{0, 0}, {4, 4}}, {{5, 0}, {3, 4}});
  EXPECT_TRUE(is_failure((*results[0]).status(), Code::kInvalidArgument, "cover 28 of 32"));
  EXPECT_EQ(head_of(store), std::nullopt);
}

TEST_F(RanksTest, StaleAnnouncementsOfEarlierPublishesAreNotFollowed) {
  expect_version(0, publish(), true);
  // What a rank 0 that died in an earlier, unchanged publish may have left.
  const auto chain = Chain::open(store, {});
  RankBegin begin{chain->run(), 1, "0123456789ab", kWorld, false, ""};
  const std::string text = serialise_begin(begin);
  ASSERT_TRUE(store->put(begin_name(1), MemoryBody(text)).ok());
  RankDone done;
  done.unchanged = true;
  done.nonces = {"a", "b", "c", "d"};
  const std::string done_text = serialise_done(done);
  ASSERT_TRUE(store->put(done_name(1, begin.attempt), MemoryBody(done_text)).ok());
  model.step();
  expect_version(1, publish());
}

TEST(RankRecordsTest, RoundTrip) {
  RankReport report;
  report.rank = 3;
  report.nonce = "abc";
  report.publisher = "host:1";
  report.payload_bytes = 99;
  report.record.pieces = {
      {"a\"b",
       DType::kBF16,
       {4, 5},
       {{0, 0}, {2, 5}},
       digest_of(DigestKind::kXxh3_128, {}),
       true,
       10,
       3},
      {"s", DType::kF32, {}, {}, digest_of(DigestKind::kXxh3_128, {}), false, 1, 0}};
  report.record.parts = {{"parts/x", 12, digest_of(DigestKind::kSha256, {})}};
  const auto parsed = parse_report(serialise_report(report));
  ASSERT_TRUE(parsed.ok()) << parsed.status().to_string();
  EXPECT_EQ(serialise_report(*parsed), serialise_report(report));
  EXPECT_EQ(parsed->record.pieces[0].box, report.record.pieces[0].box);
  EXPECT_EQ(parsed->record.parts, report.record.parts);

  std::string text = serialise_report(report);
  text[text.find("BF16")] = 'Q';
  EXPECT_FALSE(parse_report(text).ok());
  const RankBegin begin{std::string(32, 'a'), 7, "0123", 4, true, "dense: x"};
  EXPECT_EQ(serialise_begin(*parse_begin(serialise_begin(begin))), serialise_begin(begin));
  EXPECT_FALSE(parse_begin(serialise_begin({std::string(32, 'a'), 7, "../x", 4, true, ""})).ok());
}

}  // namespace
}  // namespace deltawire
