// Ranks of a sharded trainer: one version out of the boxes of all, or none.
#include <gtest/gtest.h>

#include <array>
#include <mutex>
#include <thread>

#include "base/process.h"
#include "chain/names.h"
#include "deltawire/proof.h"
#include "format/state_digest.h"
#include "publish/ranks.h"
#include "store/bodies.h"
#include "store/directory_store.h"
#include "support/hooked_store.h"
#include "support/published_model.h"
#include "support/shard.h"

namespace deltawire {
namespace {

using testing::head_of;
using testing::holds;
using testing::HookedStore;
using testing::is_failure;
using testing::make_tensor;
using testing::Model;
using testing::objects_of;
using testing::Shard;
using testing::TempFolder;
using testing::TestTensor;

class RanksTest : public ::testing::Test {
 protected:
  static constexpr unsigned kWorld = 4;
  std::shared_ptr<Store> store = std::make_shared<HookedStore>();
  Model model = Model::make();
  PublishOptions options = testing::with_schema_change();
  std::vector<std::optional<Publisher>> publishers{kWorld};
  uint64_t step = 0;              // of the next publish, less one
  bool counting = false;          // ranks are not told the step
  std::optional<unsigned> spoil;  // this rank has something that is no tensor

  RanksTest() {
    options.limits.threads = 1;
    options.ranks.world = kWorld;
    options.ranks.timeout_seconds = 60;
  }

  using Results = std::vector<std::optional<Result<PublishReport>>>;
  // All ranks but the missing ones publish the model at once.
  Results publish(const std::vector<unsigned>& missing = {}) {
    Results results(kWorld);
    ++step;
    std::vector<std::thread> threads;
    for (unsigned rank = 0; rank < kWorld; ++rank) {
      if (std::count(missing.begin(), missing.end(), rank) != 0) continue;
      threads.emplace_back([&, rank] {
        if (!publishers[rank]) {
          PublishOptions own = options;
          own.ranks.rank = rank;
          auto opened = Publisher::open(store, own);
          if (!opened.ok()) {
            results[rank].emplace(opened.status());
            return;
          }
          publishers[rank].emplace(std::move(*opened));
        }
        const Shard shard(model, rank, kWorld);
        std::vector<PublishTensor> tensors = shard.views();
        if (spoil == rank) tensors.push_back({{"", DType::kU8, {0}, {}}, {}});
        results[rank].emplace(
            publishers[rank]->publish(tensors, {}, counting ? std::nullopt : std::optional(step)));
      });
    }
    for (std::thread& thread : threads) thread.join();
    return results;
  }
  // A seed, or a version more; returns which.
  uint64_t publish_some() {
    model.step();
    const Results results = publish();
    EXPECT_TRUE((*results[0]).ok());
    return (*results[0])->version;
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
    expect_digests_of_tensors(version);
  }
  // However a tensor was cut, its digest is that of its bytes.
  void expect_digests_of_tensors(uint64_t version) {
    const auto chain = Chain::open(store, {});
    const Manifest manifest = chain->version(version)->manifest;
    const Schema schema = chain->schema(manifest).value();
    for (size_t i = 0; i < schema.tensors.size(); ++i) {
      const auto tensor =
          std::find_if(model.tensors.begin(), model.tensors.end(),
                       [&](const TestTensor& one) { return one.name == schema.tensors[i].name; });
      ASSERT_NE(tensor, model.tensors.end());
      EXPECT_EQ(manifest.digests[i].hex(), digest_of(DigestKind::kSum128, tensor->bytes).hex())
          << "version " << version << ", " << tensor->name;
    }
  }
  // Whether a model that is cut for `world` processes is the version.
  Status prove(uint64_t version, unsigned world) {
    Proof all;
    for (unsigned rank = 0; rank < world; ++rank) {
      const Shard shard(model, rank, world);
      std::vector<HeldPiece> pieces;
      for (const PublishTensor& tensor : shard.views()) {
        const TensorView& view = tensor.view;
        pieces.push_back({view.name, view.dtype, view.shape, tensor.box, view.bytes});
      }
      Proof own;
      DW_RETURN_IF_ERROR(own.add(pieces, 1));
      DW_RETURN_IF_ERROR(all.add(own));
    }
    const auto chain = Chain::open(store, {});
    const Manifest manifest = chain->version(version)->manifest;
    return all.check(chain->schema(manifest).value(), manifest);
  }
};

TEST_F(RanksTest, WhatTheyPublishIsProvenInAnySharding) {
  for (uint64_t version = 0; version < 4; ++version) {
    expect_version(version, publish(), version == 0);
    for (const unsigned world : {1, 3, 4, 7}) {
      const Status status = prove(version, world);
      EXPECT_TRUE(status.ok()) << "version " << version << ", " << world
                               << " processes: " << status.to_string();
    }
    model.step();
    EXPECT_TRUE(is_failure(prove(version, 3), Code::kBaseMismatch, "what is held is not version"));
  }
}

TEST_F(RanksTest, TogetherTheyPublishWhatOneWould) {
  expect_version(0, publish(), true);
  for (uint64_t version = 1; version <= 3; ++version) {
    model.step();
    expect_version(version, publish());
  }
  // One process alone reads the same state and goes on from it.
  auto alone = Publisher::open(store);
  ASSERT_TRUE(alone.ok());
  EXPECT_FALSE(alone->publish(model.views())->committed);
  model.step();
  EXPECT_EQ(alone->publish(model.views())->version, 4);
  EXPECT_TRUE(holds(store, 4, model));
}

TEST_F(RanksTest, ASeedOfOneProcessIsGoneOnWithBoxes) {
  auto alone = Publisher::open(store);
  ASSERT_TRUE(alone->publish(model.views()).ok());
  model.step();
  expect_version(1, publish());
  // Nothing of a tensor changed: it keeps its digest, boxes or not.
  const auto chain = Chain::open(store, {});
  const Manifest manifest = chain->version(1)->manifest;
  EXPECT_TRUE(manifest.boxes.contains("embed"));
  EXPECT_FALSE(manifest.boxes.contains("tables"));
}

// Ranks of an older release: digests of boxes without sums.
TEST_F(RanksTest, AChainWithoutSumsIsGoneOnWithThem) {
  expect_version(0, publish(), true);
  model.step();
  expect_version(1, publish());
  const std::string name = manifest_name(1);
  const auto chain = Chain::open(store, {});
  Manifest older = chain->version(1)->manifest;
  const Schema schema = chain->schema(older).value();
  for (size_t i = 0; i < schema.tensors.size(); ++i) {
    const auto boxes = older.boxes.find(schema.tensors[i].name);
    if (boxes == older.boxes.end()) continue;
    for (BoxDigest& box : boxes->second) box.sums.reset();
    older.digests[i] = boxes_digest(boxes->second, 0).value();
  }
  older.state = state_digest(states_of(schema, older).value());
  ASSERT_TRUE(store->remove(name).ok());
  ASSERT_TRUE(store->put(name, MemoryBody(serialise_manifest(older, {}).value())).ok());
  publishers.clear();
  publishers.resize(kWorld);
  EXPECT_TRUE(is_failure(prove(1, 4), Code::kUnsupported, "without the sums"));
  // All of "embed" goes on by one element: only one of its boxes changes.
  model.tensors[0].bytes[0] ^= 1;
  for (const auto& result : publish())
    ASSERT_TRUE((*result).ok()) << (*result).status().to_string();
  EXPECT_TRUE(holds(store, 2, model));
  const Manifest manifest = Chain::open(store, {})->version(2)->manifest;
  ASSERT_EQ(schema.tensors[0].name, model.tensors[0].name);
  EXPECT_EQ(manifest.digests[0], digest_of(DigestKind::kSum128, model.tensors[0].bytes));
  EXPECT_EQ(manifest.digests[1], older.digests[1]) << "unchanged: it keeps the digest it had";
}

TEST_F(RanksTest, BoxesAreCutWhereThereIsLittleMemory) {
  options.limits.memory_bytes = uint64_t{48} << 20;
  model = Model::make(400);
  expect_version(0, publish(), true);
  for (uint64_t version = 1; version <= 2; ++version) {
    model.step();
    expect_version(version, publish());
  }
  model.tensors[0].bytes[5] ^= 1;  // one slice of one box
  expect_version(3, publish());
}

// Columns of odd bytes: every row cuts two words, and each would stand in every manifest.
TEST_F(RanksTest, BoxesThatCutManyWordsHaveNoSums) {
  model.tensors = {make_tensor("layer.0.up", DType::kU8, {20'000, 7}, 1)};  // cut by columns
  for (uint64_t version = 0; version < 3; ++version) {
    for (const auto& result : publish())
      ASSERT_TRUE((*result).ok()) << (*result).status().to_string();
    EXPECT_TRUE(holds(store, version, model));
    EXPECT_LT(store->stat(manifest_name(version))->size_bytes, 4000u);
    model.tensors[0].bytes[size_t(version)] ^= 1;
  }
  EXPECT_TRUE(is_failure(prove(2, 3), Code::kUnsupported, "without the sums of the boxes"));
}

TEST_F(RanksTest, ARankMayHoldNothing) {
  for (uint64_t version = 0; version < 3; ++version) {
    std::vector<std::thread> threads;
    for (unsigned rank = 0; rank < kWorld; ++rank) {
      threads.emplace_back([&, rank] {
        PublishOptions own = options;
        own.ranks.rank = rank;
        if (!publishers[rank]) publishers[rank].emplace(Publisher::open(store, own).value());
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
  options.ranks.timeout_seconds = 0.5;
  publishers[0].reset();
  const Results results = publish({2});
  EXPECT_TRUE(is_failure((*results[0]).status(), Code::kUnavailable, "version 1: nothing from rank",
                         "2", "nothing was committed"));
  for (const unsigned rank : {1U, 3U}) {
    EXPECT_TRUE(is_failure((*results[rank]).status(), Code::kCancelled, "rank 0 gave up version 1",
                           "nothing from rank"));
  }
  EXPECT_EQ(head_of(store), 0);
  EXPECT_TRUE(holds(store, 0, seed));
  // All are back, those that had failed with what they held.
  options.ranks.timeout_seconds = 60;
  publishers[0].reset();
  publishers[2].reset();
  model.step();
  expect_version(1, publish());
}

TEST_F(RanksTest, MissingRankZeroIsATimeout) {
  options.ranks.timeout_seconds = 0.3;
  const Results results = publish({0});
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
  const uint64_t before = step;
  options.ranks.timeout_seconds = 0.1;
  publishers[0].reset();
  for (int i = 0; i < 2; ++i) {
    model.step();
    std::vector<unsigned> alone = {1, 2, 3};
    EXPECT_TRUE(is_failure((*publish(alone)[0]).status(), Code::kUnavailable, "ranks 1, 2, 3"));
  }
  // One publish of theirs for each that failed, whatever was announced since.
  step = before;
  for (int i = 0; i < 2; ++i) {
    const Results results = publish({0});
    for (const unsigned rank : {1U, 2U, 3U}) {
      EXPECT_TRUE(is_failure((*results[rank]).status(), Code::kCancelled,
                             "rank 0 gave up version 1", "nothing from ranks 1, 2, 3"));
    }
  }
  // A process that comes after them has missed nothing.
  publishers[3].reset();
  publishers[0].reset();
  options.ranks.timeout_seconds = 60;
  expect_version(1, publish());
}

TEST_F(RanksTest, ACommitThatFailsIsHeardByAll) {
  publish();
  model.step();
  options.hook_before_commit.command = "exit 1";
  publishers[0].reset();
  const Results results = publish();
  for (const auto& result : results) {
    EXPECT_TRUE(is_failure((*result).status(), Code::kCancelled, "hook before the commit"));
  }
  EXPECT_EQ(head_of(store), 0);
  options.hook_before_commit.command = "";
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
        own.ranks.world = 2;
        own.ranks.rank = rank;
        auto publisher = Publisher::open(store, own);
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

TEST_F(RanksTest, WhatAnEarlierRankZeroLeftIsNotFollowed) {
  expect_version(0, publish(), true);
  const auto chain = Chain::open(store, {});
  const RankKeys keys;
  const RankExchange exchange(*chain, 1, kWorld, keys);
  for (const bool over : {true, false}) {
    const RankAttempt of{chain->run(), 1, over ? "0123456789ab" : "ab0123456789", step + 1, kWorld};
    ASSERT_TRUE(exchange.put_begin({of, false, ""}).ok());
    if (!over) continue;
    ASSERT_TRUE(exchange.put_done({of, ranks::Ending::kFailed, "long ago", {}}).ok());
  }
  for (auto& publisher : publishers) publisher.reset();
  model.step();
  expect_version(1, publish());
}

TEST_F(RanksTest, RanksThatAreNotToldTheStepMustBeOpenedTogether) {
  counting = true;
  expect_version(0, publish(), true);
  model.step();
  expect_version(1, publish());
  options.ranks.timeout_seconds = 3;
  for (auto& publisher : publishers) publisher.reset();
  model.step();
  expect_version(2, publish());
  model.step();
  expect_version(3, publish());
  // One that starts to count anew could be anywhere: it is not believed.
  publishers[2].reset();
  model.step();
  const Results results = publish();
  EXPECT_TRUE(is_failure((*results[0]).status(), Code::kUnavailable, "nothing from rank 2"));
  const std::string message = (*results[2]).status().message();
  EXPECT_NE(message.find("rank 0 publishes step 3, rank 2 step 1"), std::string::npos) << message;
  EXPECT_EQ(head_of(store), 3);
  for (auto& publisher : publishers) publisher.reset();
  expect_version(4, publish());
}

TEST_F(RanksTest, TensorsThatCannotBePublishedAreHeardOfByAll) {
  publish();
  for (const unsigned bad : {0U, 2U}) {
    model.step();
    spoil = bad;
    const Results results = publish();
    for (unsigned rank = 0; rank < kWorld; ++rank) {
      const Code code = rank == bad ? Code::kInvalidArgument : Code::kCancelled;
      EXPECT_TRUE(is_failure((*results[rank]).status(), code, "not the name of a tensor")) << rank;
    }
    spoil.reset();
  }
  expect_version(1, publish());
}

TEST_F(RanksTest, AfterAnUnknownCommitNobodyMixesSteps) {
  auto* hooked = static_cast<HookedStore*>(store.get());
  for (const bool appears : {false, true}) {
    const uint64_t head = publish_some();
    // The answer to rank 0's commit is lost, and it cannot look whether the manifest is there.
    std::mutex mutex;
    std::optional<std::thread::id> blind;
    const std::string manifest = manifest_name(head + 1);
    const auto lose = [&](std::string_view name) {
      const std::lock_guard lock(mutex);
      if (name != manifest || blind) return Status();
      blind = std::this_thread::get_id();
      return unavailable("no answer");
    };
    (appears ? hooked->after_put : hooked->before_put) = lose;
    hooked->before_get = [&](std::string_view name) {
      const std::lock_guard lock(mutex);
      const bool lost = name == manifest && blind == std::this_thread::get_id();
      return lost ? unavailable("no answer") : Status();
    };
    model.step();
    const Model second = model;
    model.step();
    // Nobody waits for anybody between the two publishes.
    std::vector<std::thread> threads;
    std::array<std::array<std::optional<Result<PublishReport>>, 2>, kWorld> results;
    const uint64_t first_step = step + 1;
    step += 2;
    for (unsigned rank = 0; rank < kWorld; ++rank) {
      threads.emplace_back([&, rank] {
        for (const unsigned i : {0U, 1U}) {
          const Shard shard(i == 0 ? second : model, rank, kWorld);
          results[rank][i].emplace(publishers[rank]->publish(shard.views(), {}, first_step + i));
          if (rank != 0) continue;
          const std::lock_guard lock(mutex);
          blind = std::thread::id();  // of nobody
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    hooked->before_put = hooked->after_put = hooked->before_get = nullptr;
    EXPECT_TRUE(is_failure((*results[0][0]).status(), Code::kUnavailable, "may or may not"));
    for (unsigned rank = 0; rank < kWorld; ++rank) {
      EXPECT_EQ((*results[rank][0]).ok(), rank != 0 && appears) << rank;
      ASSERT_TRUE((*results[rank][1]).ok()) << (*results[rank][1]).status().to_string();
      EXPECT_EQ((*results[rank][1])->version, head + (appears ? 2 : 1));
    }
    EXPECT_TRUE(!appears || holds(store, head + 1, second));
    EXPECT_TRUE(holds(store, head + (appears ? 2 : 1), model));
  }
}

TEST_F(RanksTest, AfterAConflictTheyGoOnFromTheOthersVersion) {
  expect_version(0, publish(), true);
  PublishOptions one;
  one.limits.threads = 1;
  auto other = Publisher::open(store, one);
  model.step();
  ASSERT_TRUE(other->publish(model.views()).ok());
  model.step();
  for (const auto& result : publish()) {
    EXPECT_TRUE(is_failure((*result).status(), Code::kConflict, "version 1", process_name()));
  }
  expect_version(2, publish());
  // Also when the other comes in between.
  auto* hooked = static_cast<HookedStore*>(store.get());
  model.step();
  const Model theirs = model;
  model.step();
  ASSERT_FALSE(other->publish(theirs.views()).ok());
  hooked->before_put = [&, once = true](std::string_view name) mutable -> Status {
    if (name != manifest_name(3) || !once) return {};
    once = false;
    EXPECT_TRUE(other->publish(theirs.views()).ok());
    return {};
  };
  for (const auto& result : publish()) EXPECT_FALSE((*result).ok());
  hooked->before_put = nullptr;
  expect_version(4, publish());
}

}  // namespace
}  // namespace deltawire
