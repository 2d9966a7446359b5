// The spool of a host: what it fetches, what it keeps, and what workers read from it.
#include "live/spool.h"

#include <gtest/gtest.h>

#include <fstream>

#include "replica/local_state.h"
#include "store/memory_store.h"
#include "support/test_chain.h"

namespace deltawire::testing {
namespace {

class SpoolTest : public ::testing::Test {
 protected:
  SpoolTest() : chain_(std::in_place, std::make_shared<MemoryStore>("spool")) {
    tensors_ = {make_tensor("a", DType::kBF16, {30, 40}, 1),
                make_tensor("b", DType::kF32, {7, 9}, 2)};
    chain_->publish_full(tensors_);
  }

  void publish() {
    for (TestTensor& tensor : tensors_) change(&tensor, 0.1, ++seed_);
    chain_->publish_delta(tensors_);
  }
  Spool open(std::shared_ptr<Store> store = {}) {
    return must(Spool::open(store ? std::move(store) : chain_->store(), local()));
  }
  Identity id(uint64_t version) const {
    return must(must(Chain::open(chain_->store())).version(version)).identity();
  }
  fs::path local() const { return folder_.path() / "local"; }
  fs::path root() const { return LocalLayout{local()}.spool(); }
  size_t num_files() const {
    size_t count = 0;
    for (const auto& entry : fs::recursive_directory_iterator(root()))
      count += entry.is_regular_file();
    return count;
  }

  TempFolder folder_;
  std::optional<TestChain> chain_;
  std::vector<TestTensor> tensors_;
  uint64_t seed_ = 0;
};

TEST_F(SpoolTest, FetchesDeltasAfterTheHeldVersion) {
  publish();
  publish();
  Spool spool = open();
  EXPECT_EQ(newest_spooled(local()), std::nullopt);
  EXPECT_EQ(must(spool.fetch_new(0, {})), id(2));
  EXPECT_EQ(newest_spooled(local()), id(2));
  const auto deltas = must(spooled_deltas(local(), id(0), id(2)));
  ASSERT_EQ(deltas.size(), 2U);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(must(open_delta_parts(deltas[i])).entries.size(), 2U);
  }
  publish();
  EXPECT_EQ(must(spool.fetch_new(0, {})), id(3));
  EXPECT_EQ(must(spooled_deltas(local(), id(2), id(3))).size(), 1U);
  EXPECT_EQ(must(spooled_deltas(local(), id(3), id(3))).size(), 0U);
}

TEST_F(SpoolTest, ReportsAStoreThatLostItsVersions) {
  publish();
  Spool spool = open();
  ASSERT_EQ(must(spool.fetch_new(0, {})), id(1));
  for (const uint64_t version : {1, 0}) {
    ASSERT_TRUE(chain_->store()->remove(manifest_name(version)).ok());
    EXPECT_TRUE(is_failure(spool.fetch_new(0, {}), Code::kNotFound, ", but it held "));
  }
}

TEST_F(SpoolTest, KeepsTheHeldVersionsRecordWithoutParts) {
  publish();
  Spool spool = open();
  must(spool.fetch_new(1, {}));
  EXPECT_EQ(must(spooled_digests(local(), id(1))).size(), 2U);
  EXPECT_EQ(spooled_digests(local(), id(0)).status().code(), Code::kNotFound);
  const auto deltas = must(spooled_deltas(local(), id(0), id(1)));
  for (const PartFile& part : deltas[0]) EXPECT_FALSE(fs::exists(part.path));
}

TEST_F(SpoolTest, RefusesOtherWeightsOfTheSameVersion) {
  publish();
  publish();
  Spool spool = open();
  must(spool.fetch_new(0, {}));
  Identity other = id(1);
  other.manifest = std::string(64, 'f');
  EXPECT_EQ(spooled_deltas(local(), other, id(2)).status().code(), Code::kNotFound);
  EXPECT_EQ(spooled_deltas(local(), id(1), other).status().code(), Code::kNotFound);
  EXPECT_EQ(spooled_deltas(local(), id(2), id(1)).status().code(), Code::kNotFound);
  EXPECT_EQ(spooled_digests(local(), other).status().code(), Code::kNotFound);
}

TEST_F(SpoolTest, KeepsWhatWorkersNeedWithinItsLimit) {
  Spool spool = open();
  for (int i = 0; i < 10; ++i) {
    publish();
    must(spool.fetch_new(i + 1, 2));
  }
  EXPECT_EQ(must(spooled_deltas(local(), id(2), id(10))).size(), 8U);
  const size_t before = num_files();
  publish();
  must(spool.fetch_new(11, 11));
  EXPECT_LT(num_files(), before);
  EXPECT_EQ(spooled_deltas(local(), id(2), id(11)).status().code(), Code::kNotFound);
  EXPECT_EQ(must(spooled_deltas(local(), id(8), id(11))).size(), 3U);
  for (int i = 0; i < 40; ++i) {
    publish();
    must(spool.fetch_new(11, 11));
  }
  EXPECT_EQ(spooled_deltas(local(), id(11), id(51)).status().code(), Code::kNotFound);
  EXPECT_EQ(must(spooled_deltas(local(), id(20), id(51))).size(), 31U);
  EXPECT_EQ(must(spooled_digests(local(), id(11))).size(), 2U) << "of the checkpoint";
}

TEST_F(SpoolTest, SkipsVersionsTooFarBehind) {
  for (int i = 0; i < 40; ++i) publish();
  Spool spool = open();
  EXPECT_EQ(must(spool.fetch_new(3, 3)), id(40));
  EXPECT_LT(num_files(), 6U);
  publish();
  EXPECT_EQ(must(spool.fetch_new(3, 3)), id(41));
  EXPECT_EQ(must(spooled_deltas(local(), id(40), id(41))).size(), 1U);
}

TEST_F(SpoolTest, KeepsDeltasForAWorkerBehindTheCheckpoint) {
  for (int i = 0; i < 4; ++i) publish();
  Spool spool = open();
  must(spool.fetch_new(3, 1));
  EXPECT_EQ(must(spooled_deltas(local(), id(1), id(4))).size(), 3U);
  EXPECT_EQ(must(spooled_digests(local(), id(1))).size(), 2U);
}

TEST_F(SpoolTest, RefusesManifestsThatNameFilesOutside) {
  publish();
  const std::string name = "manifests/0000000001.json";
  std::string text = must(chain_->store()->get(name, 1 << 20));
  const size_t at = text.find("schemas/");
  ASSERT_NE(at, std::string::npos);
  text.replace(at, 8, "../../../");
  ASSERT_TRUE(chain_->store()->put(name, MemoryBody(text)).ok());
  EXPECT_FALSE(open().fetch_new(0, 0).ok());
}

TEST_F(SpoolTest, FullVersionIsNotADelta) {
  Spool spool = open();
  must(spool.fetch_new(0, 0));
  for (TestTensor& tensor : tensors_) change(&tensor, 0.5, ++seed_);
  chain_->publish_full(tensors_);
  EXPECT_EQ(must(spool.fetch_new(0, 0)), id(1));
  EXPECT_EQ(spooled_deltas(local(), id(0), id(1)).status().code(), Code::kNotFound);
}

TEST_F(SpoolTest, DoesNotStoreDamagedObjects) {
  publish();
  const Manifest manifest = must(must(Chain::open(chain_->store())).version(1)).manifest;
  const std::string part = manifest.parts[0].name;
  std::vector<uint8_t> bytes(manifest.parts[0].size_bytes);
  ASSERT_TRUE(chain_->store()->read(part, 0, bytes).ok());
  std::vector<uint8_t> damaged = bytes;
  damaged.back() ^= 1;
  ASSERT_TRUE(chain_->store()->put(part, MemoryBody(damaged)).ok());
  Spool spool = open();
  EXPECT_EQ(spool.fetch_new(0, 0).status().code(), Code::kCorruption);
  EXPECT_EQ(newest_spooled(local()), id(0));
  EXPECT_FALSE(fs::exists(root() / part));
  ASSERT_TRUE(chain_->store()->put(part, MemoryBody(bytes)).ok());
  EXPECT_EQ(must(spool.fetch_new(0, 0)), id(1)) << "once it is whole again";
}

TEST_F(SpoolTest, ReplicaReadsSpooledParts) {
  publish();
  Spool spool = open();
  must(spool.fetch_new(0, 0));
  const Manifest manifest = must(must(Chain::open(chain_->store())).version(1)).manifest;
  for (const PartRef& part : manifest.parts) {
    ASSERT_TRUE(chain_->store()->remove(part.name).ok());
  }
  auto replica = must(Replica::open(spool.store(), local(), {.heartbeat = false}));
  EXPECT_EQ(must(replica.pull()).version, 1U);
}

TEST_F(SpoolTest, StartsEmptyAfterARestart) {
  publish();
  must(open().fetch_new(0, 0));
  std::ofstream(root() / "manifests/0000000009.json") << "{";
  Spool spool = open();
  EXPECT_EQ(newest_spooled(local()), std::nullopt);
  EXPECT_EQ(must(spool.fetch_new(0, 0)), id(1));
}

TEST_F(SpoolTest, WorkersWithoutASpoolFindNothing) {
  EXPECT_EQ(newest_spooled(local()), std::nullopt);
  EXPECT_EQ(spooled_deltas(local(), id(0), id(0)).status().code(), Code::kNotFound);
  EXPECT_EQ(Spool::open(std::make_shared<MemoryStore>("empty"), local()).status().code(),
            Code::kNotFound);
}

}  // namespace
}  // namespace deltawire::testing
