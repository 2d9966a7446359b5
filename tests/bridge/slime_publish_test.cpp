#include "bridge/slime/publish.h"

#include "bridge/slime/acks.h"
#include "bridge/slime/pull.h"
#include "bridge/slime_files.h"
#include "test_files.h"

namespace deltawire {
namespace {

namespace fs = std::filesystem;
using testing::holds;
using testing::is_failure;
using testing::Model;
using testing::slime_folder;

class SlimePublish : public ::testing::Test {
 protected:
  void SetUp() override {
    model_ = {testing::make_tensor("embed.weight", DType::kBF16, {64, 33}, 1),
              testing::make_tensor("layer.norm", DType::kF32, {33}, 2),
              testing::make_tensor("layer.up", DType::kBF16, {40, 33}, 3)};
    testing::write_sharded(path("base"), model_, 2);
    options_.source = path("source");
    options_.local = path("snapshot");
    options_.base = path("base");
    options_.threads = 2;
  }
  fs::path path(const std::string& name) const { return temp_.path() / name; }

  Result<SlimePublishReport> publish() {
    fs::remove_all(path("ckpt"));
    testing::write_sharded(path("ckpt"), model_, 3);
    return slime_publish(path("ckpt"), options_);
  }
  // An engine of its own, from nothing or from what it has.
  ::testing::AssertionResult engine_has(uint64_t version) {
    SlimePullOptions how;
    how.base = path("base");
    how.dialect = options_.dialect;
    auto pulled = slime_pull({path("engine"), path("source"), version}, how);
    if (!pulled.ok()) return ::testing::AssertionFailure() << pulled.status().to_string();
    if (!pulled->settle().ok()) return ::testing::AssertionFailure() << "not settled";
    return holds(path("engine"), model_);
  }

  testing::TempFolder temp_;
  Model model_;
  SlimePublishOptions options_;
};

TEST_F(SlimePublish, DeltasThatAnEngineFollows) {
  for (const char* encoding : {"xor", "overwrite"}) {
    for (const char* checksum : {"xxh3-128", "adler32"}) {
      options_.write.encoding = encoding;
      options_.write.checksum = checksum;
      testing::change(&model_[0], 0.1, std::hash<std::string>()(std::string(encoding) + checksum));
      const auto report = publish();
      ASSERT_TRUE(report.ok()) << report.status().to_string();
      EXPECT_TRUE(report->written);
      EXPECT_EQ(report->num_changed, 1u);
      EXPECT_TRUE(holds(path("snapshot"), model_));
      EXPECT_TRUE(engine_has(report->version)) << encoding << checksum;
    }
  }
  EXPECT_TRUE(fs::exists(slime_folder(path("source"), 4)));
  const auto again = publish();
  ASSERT_TRUE(again.ok());
  EXPECT_FALSE(again->written) << "a repeat writes no further version";
  EXPECT_EQ(again->version, 4u);
}

TEST_F(SlimePublish, WholeVersionsBringTheFilesBesideThem) {
  options_.full = true;
  options_.local.clear();
  testing::change(&model_[1], 0.5, 7);
  const auto report = publish();
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  EXPECT_TRUE(fs::exists(slime_folder(path("source"), 1) / "config.json"));
  EXPECT_TRUE(engine_has(1));
  options_.full = false;
  options_.local = path("snapshot");
  testing::change(&model_[2], 0.5, 8);
  ASSERT_TRUE(publish().ok()) << "a delta on top of a whole version";
  EXPECT_TRUE(engine_has(2));
}

TEST_F(SlimePublish, AKilledPublisherLeavesASnapshotThatCatchesUp) {
  testing::change(&model_[0], 0.1, 1);
  ASSERT_TRUE(publish().ok());
  fs::remove_all(path("old"));
  fs::copy(path("snapshot"), path("old"), fs::copy_options::recursive);
  testing::change(&model_[0], 0.1, 2);
  ASSERT_TRUE(publish().ok());
  // As if it had died between the version and the snapshot.
  fs::remove_all(path("snapshot"));
  fs::copy(path("old"), path("snapshot"), fs::copy_options::recursive);
  testing::change(&model_[1], 0.5, 3);
  const auto report = publish();
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  EXPECT_EQ(report->version, 3u);
  EXPECT_EQ(report->num_changed, 1u);
  EXPECT_TRUE(engine_has(3));
}

TEST_F(SlimePublish, WhatTheFormatCannotSayIsRefused) {
  testing::change(&model_[0], 0.1, 1);
  ASSERT_TRUE(publish().ok());
  const Model before = model_;
  model_.push_back(testing::make_tensor("new", DType::kBF16, {3}, 5));
  EXPECT_TRUE(is_failure(publish().status(), Code::kUnsupported, "new"));
  model_ = before;
  model_.pop_back();
  EXPECT_TRUE(is_failure(publish().status(), Code::kUnsupported, "layer.up"));
  model_ = before;
  model_[1] = testing::make_tensor("layer.norm", DType::kBF16, {66}, 5);
  EXPECT_TRUE(is_failure(publish().status(), Code::kUnsupported, "layer.norm"));
  EXPECT_FALSE(fs::exists(slime_folder(path("source"), 2)));
  EXPECT_TRUE(holds(path("snapshot"), before));
}

TEST_F(SlimePublish, Generation1) {
  if (find_dialect("slime-gen1") == nullptr) GTEST_SKIP() << "no such dialect in this build";
  options_.dialect = "slime-gen1";
  for (const char* encoding : {"indices", "deltas", "deltas_zstd"}) {
    options_.write.encoding = encoding;
    testing::change(&model_[0], 0.1, std::hash<std::string>()(encoding));
    const auto report = publish();
    ASSERT_TRUE(report.ok()) << encoding << report.status().to_string();
    EXPECT_TRUE(engine_has(report->version)) << encoding;
  }
}

TEST(SlimeAcks, NothingIsRemovedThatAnEngineLacks) {
  testing::TempFolder temp;
  for (uint64_t v : {1, 2, 3}) fs::create_directories(slime_folder(temp.path(), v));
  SlimeAcks acks = {{"http://a", 3}, {"http://b", 0}};
  ASSERT_TRUE(write_slime_acks(temp.path(), acks).ok());
  EXPECT_EQ(*read_slime_acks(temp.path()), acks);
  EXPECT_TRUE(remove_acknowledged(temp.path(), {1, 2, 3}, acks)->empty());
  acks["http://b"] = 1;
  EXPECT_EQ(*remove_acknowledged(temp.path(), {1, 2, 3}, acks), std::vector<uint64_t>{1});
  acks["http://b"] = 3;
  EXPECT_EQ(*remove_acknowledged(temp.path(), {2, 3}, acks), std::vector<uint64_t>{2});
  EXPECT_TRUE(fs::exists(slime_folder(temp.path(), 3))) << "the newest stays";
  testing::write_text(temp.path() / ".deltawire-acknowledged.json", "[");
  EXPECT_TRUE(is_failure(read_slime_acks(temp.path()).status(), Code::kCorruption, "push"));
}

}  // namespace
}  // namespace deltawire
