// A publish in two halves: the captured state is published, even if the tensors change meanwhile.

#include "deltawire/publisher.h"
#include "support/hooked_store.h"
#include "support/published_model.h"

namespace deltawire::testing {
namespace {

class PublisherCaptureTest : public ::testing::Test {
 protected:
  std::shared_ptr<HookedStore> store = std::make_shared<HookedStore>();
  Model model = Model::make();

  Publisher open(PublishOptions options = {}) {
    options.schema_change = true;
    options.limits.threads = 2;
    return must(Publisher::open(store, options));
  }
  // Captures, overwrites the tensors, finishes; returns the captured state.
  Model capture_and_spoil(Publisher* publisher) {
    Model copy = model;
    {
      Model given = model;
      must(publisher->capture(given.views()));
      for (auto& tensor : given.tensors) std::fill(tensor.bytes.begin(), tensor.bytes.end(), 0xee);
    }
    Result<PublishReport> report = internal_error("not run");
    std::thread([&] { report = publisher->finish(); }).join();  // any thread will do
    EXPECT_TRUE(report.ok()) << report.status().to_string();
    if (report.ok()) {
      for (const std::string& warning : report->warnings) {
        EXPECT_TRUE(warning.starts_with("most weights changed")) << warning;
      }
      EXPECT_TRUE(holds(store, report->version, copy));
    }
    return copy;
  }
  Publisher seeded(const PublishOptions& options = {}) {
    Publisher publisher = open(options);
    capture_and_spoil(&publisher);
    return publisher;
  }
  void step(Publisher* publisher) {
    model.step();
    capture_and_spoil(publisher);
  }
};

TEST_F(PublisherCaptureTest, TensorsMayChangeBetweenTheHalves) {
  Publisher publisher = open();
  for (int i = 0; i < 5; ++i) {
    capture_and_spoil(&publisher);
    model.step();
  }
  EXPECT_EQ(head_of(store), 4);
  // The snapshot is up to date: an unchanged model is not published.
  capture_and_spoil(&publisher);
  EXPECT_FALSE(must(publisher.publish(model.views())).committed);
}

TEST_F(PublisherCaptureTest, WorksWithASnapshotOnDisk) {
  const TempFolder folder;
  Publisher publisher = open({.snapshot = SnapshotInFolder{folder.path()}});
  for (int i = 0; i < 4; ++i) {
    capture_and_spoil(&publisher);
    model.step();
  }
  EXPECT_EQ(head_of(store), 3);
}

TEST_F(PublisherCaptureTest, HandlesAddedRemovedAndReshapedTensors) {
  Publisher publisher = seeded();
  model.tensors.push_back(make_tensor("late", DType::kBF16, {32, 8}, 77));
  model.tensors.push_back(make_tensor("empty", DType::kBF16, {0, 8}, 77));
  capture_and_spoil(&publisher);
  model.tensors.erase(model.tensors.begin() + 1);
  step(&publisher);
  model.tensors[0] = make_tensor("embed", DType::kBF16, {210, 64}, 1);
  capture_and_spoil(&publisher);
  step(&publisher);
}

TEST_F(PublisherCaptureTest, PublishesFullVersionsBeforeCaptureReturns) {
  Publisher publisher = open({.anchors = Anchors{.every = 2}});
  for (int i = 0; i < 6; ++i) {
    capture_and_spoil(&publisher);
    model.step(i == 3 ? 1.0 : 0.02);  // once dense
  }
}

TEST_F(PublisherCaptureTest, HandlesChangesLargerThanMemory) {
  model.tensors.push_back(make_tensor("large", DType::kU8, {12 << 20}, 9));
  Publisher publisher = seeded({.limits = {.memory_bytes = uint64_t{32} << 20}});
  for (size_t i = 0; i < model.tensors.back().bytes.size() * 8 / 10; ++i) {
    model.tensors.back().bytes[i] ^= uint8_t(i * 2654435761u >> 13);
  }
  capture_and_spoil(&publisher);
  step(&publisher);
}

TEST_F(PublisherCaptureTest, AllowsOneCaptureAtATime) {
  Publisher publisher = open();
  EXPECT_FAILS(publisher.finish(), kInvalidArgument);
  capture_and_spoil(&publisher);
  model.step();
  ASSERT_TRUE(publisher.capture(model.views()).ok());
  EXPECT_FAILS(publisher.capture(model.views()), kInvalidArgument);
  EXPECT_FAILS(publisher.publish(model.views()), kInvalidArgument);
  ASSERT_TRUE(publisher.finish().ok());
  EXPECT_TRUE(holds(store, 1, model));
}

TEST_F(PublisherCaptureTest, UnfinishedCaptureLeavesNothing) {
  {
    Publisher publisher = seeded();
    model.step();
    ASSERT_TRUE(publisher.capture(model.views()).ok());
  }
  EXPECT_EQ(head_of(store), 0);
  EXPECT_TRUE(objects_of(*store, "parts/").empty());
}

TEST_F(PublisherCaptureTest, VersionAfterAFailureIsComplete) {
  Publisher publisher = seeded();
  model.step();
  store->before_put = [](std::string_view name) {
    return name.find("manifest") != std::string_view::npos ? io_error("disk is full") : Status();
  };
  ASSERT_TRUE(publisher.capture(model.views()).ok());
  EXPECT_FAILS(publisher.finish(), kIo);
  store->before_put = nullptr;
  step(&publisher);
  EXPECT_EQ(head_of(store), 1);
}

}  // namespace
}  // namespace deltawire::testing
