// Codec "fastest": a version says which codec it was made with and why, and what was measured is
// remembered. What the model chooses at which rates is in codec_choice_test.cpp.
#include <gtest/gtest.h>

#include <thread>

#include "publish/codec_rates.h"
#include "store/memory_store.h"
#include "support/published_model.h"
#include "support/thread_group.h"

namespace deltawire {
namespace {

using testing::holds;
using testing::is_failure;
using testing::Model;
using testing::TempFolder;
using testing::TestTensor;

class PublisherFastestTest : public ::testing::Test {
 protected:
  std::shared_ptr<Store> store = std::make_shared<MemoryStore>();
  Model model = Model::make(100);
  const TempFolder folder;

  Publisher open(PublishOptions options = {}) {
    options.schema_change = true;
    options.codec = "fastest";
    options.limits.threads = 2;
    auto publisher = Publisher::open(store, options);
    EXPECT_TRUE(publisher.ok()) << publisher.status().to_string();
    return std::move(*publisher);
  }
  Publisher open_with_snapshot() {
    PublishOptions options;
    options.snapshot = SnapshotInFolder{folder.path() / "snapshot"};
    return open(options);
  }
  PublishReport publish(Publisher* publisher) {
    auto report = publisher->publish(model.views());
    EXPECT_TRUE(report.ok()) << report.status().to_string();
    EXPECT_TRUE(report->warnings.empty());
    return std::move(*report);
  }
  Manifest manifest(uint64_t version) {
    return Chain::open(store, {})->version(version).value().manifest;
  }
};

bool is_candidate(const std::string& codec) {
  return codec == "tight" || codec == "gaps" || codec == "raw";
}

TEST_F(PublisherFastestTest, ReportAndManifestHaveCodecAndReason) {
  Publisher publisher = open();
  const PublishReport seed = publish(&publisher);
  EXPECT_TRUE(seed.full);
  EXPECT_EQ(seed.codec, "fastest");
  EXPECT_EQ(seed.codec_reason, "");
  for (uint64_t version = 1; version <= 4; ++version) {
    model.step();
    const PublishReport report = publish(&publisher);
    EXPECT_TRUE(is_candidate(report.codec)) << report.codec;
    EXPECT_TRUE(report.codec_reason.starts_with("fastest of ")) << report.codec_reason;
    // The seed was uploaded: there is a rate from the first delta on.
    EXPECT_NE(report.codec_reason.find("MB/s (measured)"), std::string::npos)
        << report.codec_reason;
    EXPECT_EQ(manifest(version).codec, report.codec);
    EXPECT_EQ(manifest(version).codec_reason, report.codec_reason);
    EXPECT_TRUE(holds(store, version, model));
  }
}

TEST_F(PublisherFastestTest, OtherCodecsHaveNoReason) {
  PublishOptions options;
  options.codec = "gaps";
  Publisher publisher = Publisher::open(store, options).value();
  publish(&publisher);
  model.step();
  const PublishReport report = publish(&publisher);
  EXPECT_EQ(report.codec, "gaps");
  EXPECT_EQ(report.codec_reason, "");
  EXPECT_EQ(manifest(1).codec_reason, "");
}

TEST_F(PublisherFastestTest, WithoutAMeasurementItSaysSo) {
  publish(&*std::make_unique<Publisher>(open()));
  Publisher another = open();  // in another process, without a snapshot on disk
  model.step();
  EXPECT_NE(publish(&another).codec_reason.find("nothing was uploaded yet"), std::string::npos);
}

TEST_F(PublisherFastestTest, RatesAreKeptBesideTheSnapshot) {
  {
    Publisher publisher = open_with_snapshot();
    publish(&publisher);
  }
  Publisher again = open_with_snapshot();
  model.step();
  const PublishReport report = publish(&again);
  EXPECT_NE(report.codec_reason.find("MB/s (measured)"), std::string::npos) << report.codec_reason;
  EXPECT_EQ(CodecRates::load(folder.path() / "snapshot").last_codec(), report.codec);
}

TEST_F(PublisherFastestTest, ALinkThatWasSlowGetsTheSmallest) {
  {
    Publisher publisher = open_with_snapshot();
    publish(&publisher);
  }
  CodecRates slow;
  slow.learn_upload(1e3, 1e3);
  slow.save(folder.path() / "snapshot");
  Publisher publisher = open_with_snapshot();
  model.step();
  EXPECT_EQ(publish(&publisher).codec, "tight");
  EXPECT_TRUE(holds(store, 1, model));
}

TEST_F(PublisherFastestTest, DenseAndSmallAndUnchangedStates) {
  model = Model::make();
  Publisher publisher = open();
  publish(&publisher);
  EXPECT_FALSE(publish(&publisher).committed);
  model.step(1);  // every element
  const PublishReport dense = publish(&publisher);
  EXPECT_TRUE(dense.committed);
  if (dense.full) {
    EXPECT_EQ(dense.codec_reason, "");
  }
  EXPECT_TRUE(holds(store, 1, model));
  model.tensors[4].bytes[0] ^= 1;  // one element of a tensor that has one
  EXPECT_TRUE(is_candidate(publish(&publisher).codec));
  EXPECT_TRUE(holds(store, 2, model));
}

TEST_F(PublisherFastestTest, NothingToCompareIsNoError) {
  Publisher publisher = open();
  publish(&publisher);
  std::vector<PublishTensor> views = model.views();
  for (PublishTensor& view : views) view.unchanged = true;
  const std::vector<uint8_t> added(64, 7);
  views.push_back({{"added", DType::kU8, {64}, added}, {}});
  const auto report = publisher.publish(views);
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  EXPECT_EQ(report->codec, "tight");
  EXPECT_EQ(report->codec_reason, "fastest: there is nothing to compare");
}

TEST_F(PublisherFastestTest, InTwoHalvesToo) {
  Publisher publisher = open();
  publish(&publisher);
  model.step();
  ASSERT_TRUE(publisher.capture(model.views()).ok());
  const auto report = publisher.finish();
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  EXPECT_TRUE(is_candidate(report->codec));
  EXPECT_TRUE(report->codec_reason.starts_with("fastest of "));
  EXPECT_TRUE(holds(store, 1, model));
}

// Each rank chooses for what it holds; the manifest has rank 0's choice.
TEST_F(PublisherFastestTest, RanksChooseForThemselves) {
  testing::ThreadGroup group(2);
  const auto rank_of = [&](unsigned rank) {
    PublishOptions options;
    options.ranks = group.ranks(rank);
    return open(options);
  };
  Publisher first = rank_of(0), second = rank_of(1);
  for (uint64_t version = 0; version < 3; ++version, model.step()) {
    std::vector<PublishTensor> all = model.views(), own, others;
    for (size_t i = 0; i < all.size(); ++i) (i % 2 == 0 ? own : others).push_back(all[i]);
    Result<PublishReport> led = internal_error("not called"), reported = led;
    std::thread other([&] { reported = second.publish(others); });
    led = first.publish(own);
    other.join();
    ASSERT_TRUE(led.ok()) << led.status().to_string();
    ASSERT_TRUE(reported.ok()) << reported.status().to_string();
    EXPECT_EQ(led->codec, reported->codec);
    EXPECT_EQ(manifest(version).codec_reason.empty(), version == 0);
    EXPECT_TRUE(holds(store, version, model));
  }
}

}  // namespace
}  // namespace deltawire
