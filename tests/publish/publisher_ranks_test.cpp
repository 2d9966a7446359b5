// Ranks of a sharded trainer publish one version from the boxes of all, or none.

#include "base/process.h"
#include "chain/keys.h"
#include "chain/names.h"
#include "format/proof.h"
#include "format/state_digest.h"
#include "store/bodies.h"
#include "store/directory_store.h"
#include "support/hooked_store.h"
#include "support/published_model.h"
#include "support/shard.h"
#include "support/thread_group.h"

namespace deltawire::testing {
namespace {

class RanksTest : public ::testing::Test {
 protected:
  static constexpr unsigned kWorld = 4;
  std::shared_ptr<Store> store = std::make_shared<HookedStore>();
  Model model = Model::make();
  PublishOptions options = testing::with_schema_change();
  std::vector<std::optional<Publisher>> publishers{kWorld};
  std::unique_ptr<ThreadGroup> group = std::make_unique<ThreadGroup>(kWorld);
  std::vector<std::optional<uint64_t>> steps = std::vector<std::optional<uint64_t>>(kWorld);
  std::optional<unsigned> spoil;  // this rank has something that is no tensor

  RanksTest() { options.limits.threads = 1; }

  using Results = std::vector<std::optional<Result<PublishReport>>>;
  // All ranks except `ended` publish the model at once.
  Results publish(std::optional<unsigned> ended = {}) {
    Results results(kWorld);
    if (ended) group->leave(*ended);
    std::vector<std::thread> threads;
    for (unsigned rank = 0; rank < kWorld; ++rank) {
      if (rank == ended) continue;
      threads.emplace_back([&, rank] {
        if (!publishers[rank]) {
          PublishOptions own = options;
          own.ranks = group->ranks(rank);
          auto opened = Publisher::open(store, own);
          if (!opened.ok()) {
            group->leave(rank);
            results[rank].emplace(opened.status());
            return;
          }
          publishers[rank].emplace(std::move(*opened));
        }
        const Shard shard(model, rank, kWorld);
        std::vector<PublishTensor> tensors = shard.views();
        if (spoil == rank) tensors.push_back({{"", DType::kU8, {0}, {}}, {}});
        results[rank].emplace(publishers[rank]->publish(tensors, {}, steps[rank]));
      });
    }
    for (std::thread& thread : threads) thread.join();
    return results;
  }
  // Like a trainer that is restarted.
  void restart() {
    for (auto& publisher : publishers) publisher.reset();
    group = std::make_unique<ThreadGroup>(kWorld);
  }
  void expect_version(uint64_t version, const Results& results, bool full = false) {
    for (const auto& result : results) {
      const PublishReport report = must(*result);
      EXPECT_EQ(report.version, version);
      EXPECT_TRUE(report.committed);
      EXPECT_EQ(report.full, full);
      for (const std::string& warning : report.warnings) {
        EXPECT_TRUE(warning.starts_with("most weights changed")) << warning;
      }
    }
    EXPECT_TRUE(holds(store, version, model));
    EXPECT_TRUE(objects_of(*store, kPendingPrefix).empty());
    expect_digests_of_tensors(version);
  }
  template <class... Expected>
  static void expect_all_fail(const Results& results, const Expected&... expected) {
    for (const auto& result : results) EXPECT_TRUE(is_failure(*result, expected...));
  }
  // For any sharding of a tensor, its digest is that of all its bytes.
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
  // Checks the version against a model that is sharded for `world` processes.
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

TEST_F(RanksTest, VersionsCanBeProvenInAnySharding) {
  for (uint64_t version = 0; version < 4; ++version) {
    expect_version(version, publish(), version == 0);
    for (const unsigned world : {1, 3, 4, 7}) {
      const Status status = prove(version, world);
      EXPECT_TRUE(status.ok()) << "version " << version << ", " << world
                               << " processes: " << status.to_string();
    }
    model.step();
    EXPECT_FAILS(prove(version, 3), kBaseMismatch, "the weights held are not those of version");
  }
}

TEST_F(RanksTest, PublishTheSameAsOneProcess) {
  expect_version(0, publish(), true);
  for (uint64_t version = 1; version <= 3; ++version) {
    model.step();
    expect_version(version, publish());
  }
  // A single process reads the same state and continues from it.
  auto alone = must(Publisher::open(store));
  EXPECT_FALSE(alone.publish(model.views())->committed);
  model.step();
  EXPECT_EQ(alone.publish(model.views())->version, 4);
  EXPECT_TRUE(holds(store, 4, model));
}

TEST_F(RanksTest, SeedOfOneProcessContinuesWithBoxes) {
  auto alone = Publisher::open(store);
  ASSERT_TRUE(alone->publish(model.views()).ok());
  model.step();
  expect_version(1, publish());
  // An unchanged tensor keeps its digest, with or without boxes.
  const auto chain = Chain::open(store, {});
  const Manifest manifest = chain->version(1)->manifest;
  EXPECT_TRUE(manifest.boxes.contains("embed"));
  EXPECT_FALSE(manifest.boxes.contains("tables"));
}

// Ranks of an older release wrote digests of boxes without sums.
TEST_F(RanksTest, ChainWithoutSumsContinuesWithSums) {
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
  restart();
  EXPECT_FAILS(prove(1, 4), kUnsupported, "without the sums");
  // One element of "embed" changes, and with it only one box.
  model.tensors[0].bytes[0] ^= 1;
  for (const auto& result : publish()) must(*result);
  EXPECT_TRUE(holds(store, 2, model));
  const Manifest manifest = Chain::open(store, {})->version(2)->manifest;
  ASSERT_EQ(schema.tensors[0].name, model.tensors[0].name);
  EXPECT_EQ(manifest.digests[0], digest_of(DigestKind::kSum128, model.tensors[0].bytes));
  EXPECT_EQ(manifest.digests[1], older.digests[1]) << "unchanged: it keeps the digest it had";
}

TEST_F(RanksTest, SplitBoxesWithLittleMemory) {
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

// Columns with an odd number of bytes: each row splits two words, and the manifest would list them.
TEST_F(RanksTest, OmitSumsForBoxesThatSplitManyWords) {
  model.tensors = {make_tensor("layer.0.up", DType::kU8, {20'000, 7}, 1)};  // cut by columns
  for (uint64_t version = 0; version < 3; ++version) {
    for (const auto& result : publish()) must(*result);
    EXPECT_TRUE(holds(store, version, model));
    EXPECT_LT(store->stat(manifest_name(version))->size_bytes, 4000u);
    model.tensors[0].bytes[size_t(version)] ^= 1;
  }
  EXPECT_FAILS(prove(2, 3), kUnsupported, "without the sums of the boxes");
}

TEST_F(RanksTest, AllowARankThatHoldsNothing) {
  for (uint64_t version = 0; version < 3; ++version) {
    in_threads(kWorld, [&](unsigned rank) {
      PublishOptions own = options;
      own.ranks = group->ranks(rank);
      if (!publishers[rank]) publishers[rank].emplace(Publisher::open(store, own).value());
      const Shard shard(model, std::min(rank, 2U), 3);
      const bool none = rank == 2;  // what would be its part is the last rank's
      const auto report =
          must(publishers[rank]->publish(none ? std::vector<PublishTensor>() : shard.views()));
      EXPECT_EQ(report.version, version);
    });
    EXPECT_TRUE(holds(store, version, model));
    model.step();
  }
}

TEST_F(RanksTest, PublishToADirectory) {
  TempFolder folder;
  store = std::make_shared<DirectoryStore>(folder.path() / "store");
  expect_version(0, publish(), true);
  model.step();
  expect_version(1, publish());
}

TEST_F(RanksTest, UnchangedModelIsNotPublished) {
  publish();
  for (int i = 0; i < 3; ++i) {
    for (const auto& result : publish()) {
      EXPECT_FALSE(must(*result).committed);
      EXPECT_EQ((*result)->version, 0);
    }
  }
  model.step();
  expect_version(1, publish());
}

TEST_F(RanksTest, HandleAddedAndRemovedTensors) {
  publish();
  model.tensors.erase(model.tensors.begin() + 3);                         // whole, on one rank
  model.tensors.push_back(make_tensor("vector", DType::kF32, {12}, 31));  // whole, on one rank
  expect_version(1, publish());
  // A new tensor in boxes cannot be part of a delta.
  model.tensors.push_back(make_tensor("zz.new", DType::kBF16, {16, 8}, 32));
  const Results results = publish();
  expect_version(2, results, true);
  EXPECT_TRUE((*results[0])->reason.starts_with("schema: tensor \"zz.new\""))
      << (*results[0])->reason;
  model.step();
  expect_version(3, publish());
}

TEST_F(RanksTest, DenseChangesArePublishedAsAFullVersion) {
  publish();
  std::mt19937_64 random(5);
  for (TestTensor& tensor : model.tensors) {
    for (uint8_t& byte : tensor.bytes) byte = uint8_t(random());
  }
  const Results results = publish();
  expect_version(1, results, true);
  EXPECT_TRUE((*results[3])->reason.starts_with("dense: "));
}

TEST_F(RanksTest, EndedRankFailsAllWithoutAVersion) {
  expect_version(0, publish(), true);
  const Model seed = model;
  for (const unsigned ended : {2U, 0U}) {
    model.step();
    const Results results = publish(ended);
    for (unsigned rank = 0; rank < kWorld; ++rank) {
      if (rank == ended) continue;
      EXPECT_FAILS(*results[rank], kUnavailable, "exchange \"begin\"",
                   "rank " + std::to_string(ended) + " has ended");
    }
    EXPECT_EQ(head_of(store), 0);
    EXPECT_TRUE(holds(store, 0, seed));
    restart();
  }
  expect_version(1, publish());
}

TEST_F(RanksTest, FailedRankIsNamedByAll) {
  publish();
  model.step();
  auto* hooked = static_cast<HookedStore*>(store.get());
  std::atomic<int> left{1};
  hooked->before_put = [&](std::string_view name) {
    return name.starts_with(kPartPrefix) && left-- == 1 ? io_error("disk full") : Status();
  };
  const Results results = publish();
  expect_all_fail(results, Code::kIo, "disk full");
  EXPECT_TRUE(objects_of(*store, kPartPrefix).empty()) << "what the others had put is taken back";
  EXPECT_EQ(head_of(store), 0);
  hooked->before_put = nullptr;
  expect_version(1, publish());
}

TEST_F(RanksTest, FailedCommitIsReportedToAllRanks) {
  publish();
  model.step();
  options.hook_before_commit.command = "exit 1";
  restart();
  const Results results = publish();
  expect_all_fail(results, Code::kCancelled, "hook before the commit");
  EXPECT_EQ(head_of(store), 0);
  options.hook_before_commit.command = "";
  restart();
  expect_version(1, publish());
}

TEST_F(RanksTest, RefuseOverlapsAndGapsNamingRanks) {
  std::vector<std::optional<Result<PublishReport>>> results(2);
  const TestTensor tensor = make_tensor("t", DType::kBF16, {8, 4}, 1);
  const auto run = [&](const Box& first, const Box& second, DType other = DType::kBF16) {
    ThreadGroup two(2);
    in_threads(2, [&](unsigned rank) {
      PublishOptions own = options;
      own.ranks = two.ranks(rank);
      auto publisher = Publisher::open(store, own);
      const Box& box = rank == 0 ? first : second;
      const DType dtype = rank == 0 ? tensor.dtype : other;
      std::vector<uint8_t> contents(tensor_size_bytes(dtype, box.extent).value());
      const PublishTensor piece{{tensor.name, dtype, tensor.shape, contents}, box};
      results[rank].emplace(publisher->publish({&piece, 1}));
    });
  };
  const auto expect_refused = [&](const auto&... phrases) {
    expect_all_fail(results, Code::kInvalidArgument, "tensor \"t\"", phrases...);
    EXPECT_EQ(head_of(store), std::nullopt);
  };
  run({{0, 0}, {5, 4}}, {{4, 0}, {4, 4}});
  expect_refused("(rank 0)", "(rank 1)", "overlap");
  run({{0, 0}, {4, 4}}, {{5, 0}, {3, 4}});
  expect_refused("its boxes (ranks 0, 1) cover 28 of 32 elements");
  run({{0, 0}, {4, 4}}, {{4, 0}, {4, 4}}, DType::kF16);
  expect_refused("BF16", "(rank 0) and F16", "(rank 1)");
}

TEST_F(RanksTest, RefuseDifferentSteps) {
  steps = {3, 3, 3, 3};
  expect_version(0, publish(), true);
  model.step();
  steps = {4, 4, 3, 4};
  expect_all_fail(publish(), Code::kInvalidArgument, "rank 0 is at \"step 4, begin\"",
                  "rank 2 at \"step 3, begin\"");
  EXPECT_EQ(head_of(store), 0);
  steps = {5, 5, 5, 5};
  expect_version(1, publish());
}

// The exchange fails on one rank only, which publishes again while the others still wait.
TEST_F(RanksTest, RanksOutOfStepSynchroniseAgain) {
  expect_version(0, publish(), true);
  restart();
  unsigned calls = 0;
  const Model first = model;
  model.step();
  for (unsigned rank = 0; rank < kWorld; ++rank) {
    PublishOptions own = options;
    own.ranks = group->ranks(rank);
    if (rank == 2) {
      own.ranks.all_gather = [&, gather = own.ranks.all_gather](std::string_view mine) {
        Result<std::vector<std::string>> all = gather(mine);
        return ++calls == 2 ? unavailable("connection reset") : std::move(all);
      };
    }
    publishers[rank].emplace(Publisher::open(store, own).value());
  }
  Results again(kWorld);
  in_threads(kWorld, [&](unsigned rank) {
    const Shard shard(model, rank, kWorld);
    if (rank == 2) {
      const auto failed = publishers[rank]->publish(shard.views());
      EXPECT_FAILS(failed, kUnavailable, "connection reset");
    }
    again[rank].emplace(publishers[rank]->publish(shard.views()));
  });
  EXPECT_EQ(head_of(store), 1) << "rank 0 had all reports";
  expect_all_fail(again, Code::kInvalidArgument, "rank 0 is at \"outcome of the delta\"",
                  "rank 2 at \"begin\"");
  EXPECT_TRUE(holds(store, 0, first));
  EXPECT_TRUE(holds(store, 1, model));
  model.step();
  expect_version(2, publish());
}

TEST_F(RanksTest, RefuseAnotherRunOrVersion) {
  expect_version(0, publish(), true);
  model.step();
  expect_version(1, publish());
  const auto other = std::make_shared<HookedStore>();
  ASSERT_TRUE(Publisher::open(other, {.limits = {.threads = 1}})->publish(model.views()).ok());
  restart();
  PublishOptions own = options;
  own.ranks = group->ranks(2);
  publishers[2].emplace(Publisher::open(other, own).value());
  model.step();
  expect_all_fail(publish(), Code::kBaseMismatch, "rank 2 finds run", "rank 0 publishes to run");
  EXPECT_EQ(head_of(store), 1);
  // A rank has seen a version that the store has lost since.
  restart();
  own.ranks = group->ranks(2);
  publishers[2].emplace(Publisher::open(store, own).value());
  ASSERT_TRUE(store->remove(manifest_name(1)).ok());
  expect_all_fail(publish(), Code::kBaseMismatch, "rank 2 is at version 1",
                  "rank 0 publishes on top of version 0");
  EXPECT_EQ(head_of(store), 0);
}

// Reports go through the group, so only rank 0 needs the key; others who can write to the store
// cannot change anything undetected.
TEST_F(RanksTest, OnlyRankZeroNeedsTheKeyAndBoxesAreChecked) {
  TempFolder folder;
  ASSERT_TRUE(make_key_files(folder.path() / "key").ok());
  const auto open_signed = [&] {
    restart();
    PublishOptions own = options;
    own.keys.sign = folder.path() / "key";
    own.ranks = group->ranks(0);
    publishers[0].emplace(Publisher::open(store, own).value());
  };
  open_signed();
  auto* hooked = static_cast<HookedStore*>(store.get());
  hooked->rewrite = [](std::string_view name, std::string text) {
    if (name.ends_with("rank-2.boxes")) text[text.size() / 2] ^= 1;
    return text;
  };
  expect_all_fail(publish(), Code::kCorruption, "rank-2.boxes", "sha-256 of block 0");
  EXPECT_EQ(head_of(store), std::nullopt);
  hooked->rewrite = nullptr;
  expect_version(0, publish(), true);
  model.step();
  expect_version(1, publish());
  EXPECT_TRUE(Chain::open(store, {.trust = folder.path() / "key.pub"})->version(1).ok());
}

TEST_F(RanksTest, UnpublishableTensorsFailOnAllRanks) {
  publish();
  for (const unsigned bad : {0U, 2U}) {
    model.step();
    spoil = bad;
    const Results results = publish();
    for (unsigned rank = 0; rank < kWorld; ++rank) {
      EXPECT_FAILS(*results[rank], kInvalidArgument, "not the name of a tensor") << rank;
    }
    spoil.reset();
  }
  expect_version(1, publish());
}

TEST_F(RanksTest, ContinueFromTheWinnersVersionAfterAConflict) {
  expect_version(0, publish(), true);
  auto other = Publisher::open(store, {.limits = {.threads = 1}});
  model.step();
  ASSERT_TRUE(other->publish(model.views()).ok());
  model.step();
  expect_all_fail(publish(), Code::kConflict, "version 1", process_name());
  expect_version(2, publish());
  // Also when the other publisher commits in between.
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
}  // namespace deltawire::testing
