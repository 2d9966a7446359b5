// A trainer and a replica with weights on a GPU, over a chain: every version equals the CPU's bit
// for bit, and a failure leaves nothing that counts as a version.
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <thread>

#include "cuda/device_arrays.h"
#include "deltawire/publisher.h"
#include "deltawire/tensor_replica.h"
#include "device/cuda.h"
#include "maintain/walk_parts.h"
#include "support/hooked_store.h"
#include "support/published_model.h"
#include "tensor/text.h"

namespace deltawire::testing {
namespace {

using cuda::check_device;
using cuda::OnDevice;

// A model's tensors on the device.
class DeviceModel {
 public:
  DeviceModel() = default;
  explicit DeviceModel(const Model& model) { become(model); }

  void become(const Model& model) {
    arrays_.clear();
    for (const TestTensor& tensor : model.tensors) arrays_.emplace_back(tensor.bytes);
  }
  // All tensors, or only those that `there` selects; the others stay on the host.
  std::vector<PublishTensor> views(const Model& model,
                                   const std::function<bool(size_t)>& there = {}) const {
    std::vector<PublishTensor> views = model.views();
    for (size_t i = 0; i < views.size(); ++i) {
      if (there && !there(i)) continue;
      views[i].view.bytes = {arrays_[i].data(), views[i].view.bytes.size()};
      views[i].memory = Memory::kCuda;
    }
    return views;
  }
  std::vector<LiveTensor> live(const Model& model) const {
    std::vector<LiveTensor> live;
    for (size_t i = 0; i < arrays_.size(); ++i) {
      const TestTensor& tensor = model.tensors[i];
      live.push_back({tensor.name,
                      tensor.dtype,
                      tensor.shape,
                      {arrays_[i].data(), tensor.bytes.size()},
                      Memory::kCuda});
    }
    return live;
  }
  ::testing::AssertionResult is(const Model& model) const {
    for (size_t i = 0; i < arrays_.size(); ++i) {
      if (arrays_[i].fetch() != model.tensors[i].bytes) {
        return ::testing::AssertionFailure() << model.tensors[i].name << " differs";
      }
    }
    return ::testing::AssertionSuccess();
  }

 private:
  std::vector<OnDevice> arrays_;
};

class LiveModelTest : public ::testing::Test {
 protected:
  std::shared_ptr<HookedStore> store = std::make_shared<HookedStore>();
  Model model = Model::make(50);  // its embedding has several blocks
  std::vector<OnDevice> halves_;

  Publisher open(PublishOptions options = {}) {
    options.schema_change = true;
    options.limits.threads = 2;
    auto publisher = Publisher::open(store, options);
    EXPECT_TRUE(publisher.ok()) << publisher.status().to_string();
    return std::move(*publisher);
  }
  TensorReplica order_after(const DeviceModel& device, bool check_commit = true,
                            std::optional<uint64_t> kept_bytes = {}) {
    TensorReplicaOptions options;
    options.cuda.kept_bytes = kept_bytes;
    options.limits.threads = 2;
    options.heartbeat = false;
    options.check_commit = check_commit;
    auto replica = TensorReplica::open(store, device.live(model), options);
    EXPECT_TRUE(replica.ok()) << replica.status().to_string();
    return std::move(*replica);
  }
  PublishReport publish(Publisher* publisher, const std::vector<PublishTensor>& tensors,
                        bool most_changed = false) {
    auto report = publisher->publish(tensors);
    EXPECT_TRUE(report.ok()) << report.status().to_string();
    if (!report.ok()) return {};
    for (const std::string& warning : report->warnings) {
      EXPECT_TRUE(most_changed && warning.starts_with("most weights changed")) << warning;
    }
    EXPECT_TRUE(holds(store, report->version, model));
    return *report;
  }
  // Publishes while `meddle`, which progress calls once, changes a byte of the first tensor.
  void expect_caught(Publisher* publisher, DeviceModel* device, std::function<void()>* meddle,
                     size_t byte) {
    const std::vector<LiveTensor> live = device->live(model);
    TestTensor& tensor = model.tensors[0];
    *meddle = [&] {
      tensor.bytes[byte] ^= 1;
      ASSERT_GOOD(cuda::send(tensor.bytes, live[0].bytes.data(), nullptr));
    };
    const auto failed = publisher->publish(device->views(model));
    EXPECT_FALSE(*meddle);  // it was called
    EXPECT_TRUE(
        is_failure(failed.status(), Code::kIo, quote(tensor.name), "changed while it was read"));
    EXPECT_EQ(head_of(store), 0);
    EXPECT_EQ(publish(publisher, device->views(model)).version, 1);
  }
  void publish_steps(PublishOptions options) {
    Publisher publisher = open(options);
    DeviceModel device(model);
    publish(&publisher, device.views(model));
    for (int i = 0; i < 4; ++i) {
      model.step();
      device.become(model);
      EXPECT_EQ(publish(&publisher, device.views(model)).version, i + 1);
    }
    EXPECT_FALSE(publish(&publisher, device.views(model)).committed);  // the snapshot has followed
    const SnapshotMemory memory = publisher.memory();
    EXPECT_EQ(memory.host, 0);
    const bool pinned = std::get<SnapshotInMemory>(options.snapshot).pinned;
    EXPECT_NE(pinned ? memory.pinned : memory.device, 0);
  }
};

TEST_F(LiveModelTest, PublishesWithASnapshotOnTheDevice) {
  SKIP_WITHOUT_GPU();
  publish_steps({});
}

TEST_F(LiveModelTest, PublishesWithASnapshotInPinnedMemory) {
  SKIP_WITHOUT_GPU();
  PublishOptions options;
  options.snapshot = SnapshotInMemory{.pinned = true};
  publish_steps(options);
}

TEST_F(LiveModelTest, PublishesWithEveryCodec) {
  SKIP_WITHOUT_GPU();
  for (const char* codec : {"tight", "gaps", "adaptive", "raw"}) {
    SCOPED_TRACE(codec);
    store = std::make_shared<HookedStore>();
    PublishOptions options;
    options.codec = codec;
    publish_steps(options);
  }
}

TEST_F(LiveModelTest, WritesLikeTheCpu) {
  SKIP_WITHOUT_GPU();
  PublishOptions options;
  options.codec = "tight";
  const auto other = std::make_shared<HookedStore>();
  Publisher here = open(options), there = Publisher::open(other, options).value();
  DeviceModel device(model);
  for (int i = 0; i < 3; ++i) {
    const PublishReport a = publish(&here, device.views(model));
    const auto b = there.publish(model.views());
    ASSERT_TRUE(b.ok());
    EXPECT_EQ(a.num_changed, b->num_changed);
    EXPECT_EQ(a.bytes, b->bytes);
    const Manifest ours = Chain::open(store, {})->version(i).value().manifest;
    const Manifest theirs = Chain::open(other, {})->version(i).value().manifest;
    EXPECT_EQ(ours.state, theirs.state);
    EXPECT_EQ(ours.digests, theirs.digests);
    ASSERT_EQ(ours.parts.size(), theirs.parts.size());
    for (size_t k = 0; k < ours.parts.size() && i == 0; ++k) {  // whole: packed on the device
      EXPECT_EQ(ours.parts[k].sha256, theirs.parts[k].sha256) << ours.parts[k].name;
    }
    model.step();
    device.become(model);
  }
}

TEST_F(LiveModelTest, TensorsMayMoveBetweenHostAndDevice) {
  SKIP_WITHOUT_GPU();
  Publisher publisher = open();
  DeviceModel device(model);
  for (int i = 0; i < 6; ++i) {
    publish(&publisher, device.views(model, [&](size_t n) { return (n + i) % 3 != 0; }));
    model.step();
    device.become(model);
  }
}

TEST_F(LiveModelTest, HandlesAddedRemovedAndReshapedTensors) {
  SKIP_WITHOUT_GPU();
  Publisher publisher = open();
  DeviceModel device(model);
  publish(&publisher, device.views(model));
  model.tensors.push_back(make_tensor("late", DType::kBF16, {32, 8}, 77));
  model.tensors.push_back(make_tensor("empty", DType::kBF16, {0, 8}, 77));
  device.become(model);
  publish(&publisher, device.views(model));
  model.tensors.erase(model.tensors.begin() + 1);
  model.step();
  device.become(model);
  publish(&publisher, device.views(model));
  model.tensors[0] = make_tensor("embed", DType::kBF16, {2100, 64}, 1);
  device.become(model);
  publish(&publisher, device.views(model));
  Random random(77);
  for (TestTensor& tensor : model.tensors) {  // dense: stored whole
    for (uint8_t& byte : tensor.bytes) byte = uint8_t(random());
  }
  device.become(model);
  EXPECT_TRUE(publish(&publisher, device.views(model), true).full);
  model.step();
  device.become(model);
  EXPECT_FALSE(publish(&publisher, device.views(model)).full);
}

TEST_F(LiveModelTest, TensorsMayChangeAfterCapture) {
  SKIP_WITHOUT_GPU();
  Publisher publisher = open();
  for (int i = 0; i < 4; ++i) {
    {
      DeviceModel device(model);
      ASSERT_GOOD(publisher.capture(device.views(model)));
      Model spoilt = model;
      for (TestTensor& tensor : spoilt.tensors) tensor.bytes.assign(tensor.bytes.size(), 0xee);
      device.become(spoilt);
    }
    const auto report = publisher.finish();
    ASSERT_TRUE(report.ok()) << report.status().to_string();
    EXPECT_TRUE(report->warnings.empty());
    EXPECT_TRUE(holds(store, i, model));
    model.step();
  }
}

TEST_F(LiveModelTest, FailedPublishKeepsTheSnapshot) {
  SKIP_WITHOUT_GPU();
  Publisher publisher = open();
  DeviceModel device(model);
  publish(&publisher, device.views(model));
  model.step();
  device.become(model);
  store->before_put = [](std::string_view name) {
    return name.find("manifest") != std::string_view::npos ? io_error("disk is full") : Status();
  };
  EXPECT_TRUE(is_failure(publisher.publish(device.views(model)).status(), Code::kIo));
  store->before_put = nullptr;
  model.step();
  device.become(model);
  EXPECT_EQ(publish(&publisher, device.views(model)).version, 1);
}

// The change comes between the pass that encodes them and the one that hashes them.
TEST_F(LiveModelTest, DetectsTensorsThatChangeMeanwhile) {
  SKIP_WITHOUT_GPU();
  for (const bool pinned : {false, true}) {
    for (const char* codec : {"tight", "gaps", "adaptive", "auto"}) {
      SCOPED_TRACE(codec);
      store = std::make_shared<HookedStore>();
      std::function<void()> meddle;
      PublishOptions options;
      options.codec = codec;
      options.snapshot = SnapshotInMemory{.pinned = pinned};
      options.progress = [&](uint64_t done, uint64_t total) {
        if (done != 0 && done < total && meddle) std::exchange(meddle, nullptr)();
        return true;
      };
      Publisher publisher = open(options);
      DeviceModel device(model);
      publish(&publisher, device.views(model));
      model.step();
      device.become(model);
      expect_caught(&publisher, &device, &meddle, model.tensors[0].bytes.size() / 2);
    }
  }
}

// Each tensor is a wave: the first is changed after its turn. Its own passes saw one state, and
// those of the others saw another.
TEST_F(LiveModelTest, DetectsTensorsOfTwoSteps) {
  SKIP_WITHOUT_GPU();
  for (const bool had_changed : {true, false}) {
    for (const char* codec : {"auto", "adaptive"}) {
      SCOPED_TRACE(std::string(codec) + (had_changed ? ", changed" : ", unchanged"));
      store = std::make_shared<HookedStore>();
      TestTensor& tensor = model.tensors[0];
      std::function<void()> meddle;
      PublishOptions options;
      options.codec = codec;
      options.cuda.wave_bytes = 1;
      options.progress = [&](uint64_t done, uint64_t) {
        if (done >= tensor.bytes.size() && meddle) std::exchange(meddle, nullptr)();
        return true;
      };
      Publisher publisher = open(options);
      DeviceModel device(model);
      publish(&publisher, device.views(model));
      const std::vector<uint8_t> before = tensor.bytes;
      model.step();
      if (!had_changed) tensor.bytes = before;
      device.become(model);
      expect_caught(&publisher, &device, &meddle, 7);
    }
  }
}

// A full version is coded on the device during the put: this bit does not change the size of a
// block, and the final pass detects it.
TEST_F(LiveModelTest, DetectsTensorsThatChangeDuringAFullVersion) {
  SKIP_WITHOUT_GPU();
  Publisher publisher = open();
  DeviceModel device(model);
  const std::vector<LiveTensor> live = device.live(model);
  TestTensor& tensor = model.tensors[0];
  bool meddled = false;
  store->before_put = [&](std::string_view name) {
    if (name.find("safetensors") == std::string_view::npos || std::exchange(meddled, true)) {
      return Status();
    }
    tensor.bytes[tensor.bytes.size() / 2] ^= 1;
    return cuda::send(tensor.bytes, live[0].bytes.data(), nullptr);
  };
  const auto failed = publisher.publish(device.views(model));
  EXPECT_TRUE(meddled);
  EXPECT_TRUE(
      is_failure(failed.status(), Code::kIo, quote(tensor.name), "changed while it was read"));
  EXPECT_EQ(publish(&publisher, device.views(model)).version, 0);
}

TEST_F(LiveModelTest, FullVersionsFromTheDeviceHoldTheModel) {
  SKIP_WITHOUT_GPU();
  PublishOptions options;
  options.anchors = Anchors{.every = 1};
  Publisher publisher = open(options);
  DeviceModel device(model);
  publish(&publisher, device.views(model));
  for (int i = 0; i < 2; ++i) {
    model.step();
    device.become(model);
    EXPECT_TRUE(publish(&publisher, device.views(model)).anchored);
  }
}

// The publisher's copy of such tensors is not the version: it is read from the chain again.
TEST_F(LiveModelTest, DetectsChangesBeforeTheSnapshotAdvances) {
  SKIP_WITHOUT_GPU();
  Publisher publisher = open();
  DeviceModel device(model);
  publish(&publisher, device.views(model));
  model.step();
  device.become(model);
  const Model committed = model;
  const std::vector<LiveTensor> live = device.live(model);
  bool meddled = false;
  store->before_put = [&](std::string_view name) {
    if (name.find("manifest") == std::string_view::npos || std::exchange(meddled, true)) {
      return Status();
    }
    model.step();
    for (size_t i = 0; i < live.size(); ++i) {
      EXPECT_TRUE(cuda::send(model.tensors[i].bytes, live[i].bytes.data(), nullptr).ok());
    }
    return Status();
  };
  const auto report = publisher.publish(device.views(model));
  EXPECT_TRUE(meddled);
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  EXPECT_EQ(report->warnings.size(), 1);
  EXPECT_TRUE(holds(store, 1, committed));
  EXPECT_EQ(publish(&publisher, device.views(model)).version, 2);
  EXPECT_FALSE(publish(&publisher, device.views(model)).committed);
}

TEST_F(LiveModelTest, SurvivesATrainerThatDoesNotWait) {
  SKIP_WITHOUT_GPU();
  Publisher publisher = open();
  DeviceModel device(model);
  publish(&publisher, device.views(model));
  const std::vector<LiveTensor> live = device.live(model);
  std::atomic<bool> stop = false;
  std::thread trainer([&] {
    Random random(3);
    while (!stop) {
      const LiveTensor& tensor = live[random() % live.size()];
      const uint8_t wrong = uint8_t(random());
      uint8_t* const to = tensor.bytes.data() + random() % tensor.bytes.size();
      if (!cuda::send({&wrong, 1}, to, nullptr).ok()) return;
    }
  });
  for (int i = 0; i < 30; ++i) {
    const auto report = publisher.publish(device.views(model));
    if (report.ok()) continue;
    EXPECT_TRUE(is_failure(report.status(), Code::kIo, "changed while it was read"));
  }
  stop = true;
  trainer.join();
  const auto last = publisher.publish(device.views(model));
  ASSERT_TRUE(last.ok()) << last.status().to_string();
  const auto checked = check_states(*Chain::open(store, {}), {});
  ASSERT_TRUE(checked.ok()) << checked.status().to_string();
  EXPECT_TRUE(checked->problems.empty()) << checked->problems[0];
}

TEST_F(LiveModelTest, AnotherProcessContinuesFromTheChain) {
  SKIP_WITHOUT_GPU();
  DeviceModel device(model);
  {
    Publisher publisher = open();
    publish(&publisher, device.views(model));
  }
  Publisher publisher = open();
  model.step();
  device.become(model);
  EXPECT_FALSE(publish(&publisher, device.views(model)).full);
}

// fp32 masters, published as bf16.
TEST_F(LiveModelTest, PublishesRoundedMasters) {
  SKIP_WITHOUT_GPU();
  Publisher publisher = open();
  Random random(5);
  std::vector<float> masters(300 * 1000);
  for (float& value : masters) value = float(0.02 * cuda::normal(random));
  TestTensor rounded = make_tensor("w", DType::kBF16, {300, 1000}, 1);
  for (int step = 0; step < 4; ++step) {
    std::vector<uint8_t> bytes(masters.size() * 4);
    std::memcpy(bytes.data(), masters.data(), bytes.size());
    for (size_t i = 0; i < masters.size(); ++i) {
      const uint16_t value = uint16_t(bf16_of_f32(std::bit_cast<uint32_t>(masters[i])));
      std::memcpy(rounded.bytes.data() + 2 * i, &value, 2);
    }
    model.tensors = {rounded};
    const OnDevice device(bytes);
    const PublishTensor tensor{{"w", DType::kBF16, {300, 1000}, {device.data(), bytes.size()}},
                               {},
                               Memory::kCuda,
                               DType::kF32};
    publish(&publisher, {tensor});
    for (float& value : masters) value += float(1e-5 * cuda::normal(random));
  }
}

TEST_F(LiveModelTest, ReplicaFollowsAndCatchesUp) {
  SKIP_WITHOUT_GPU();
  Publisher publisher = open();
  publish(&publisher, model.views());
  Model empty = model;
  for (TestTensor& tensor : empty.tensors) tensor.bytes.assign(tensor.bytes.size(), 0);
  DeviceModel device(empty);
  TensorReplica replica = order_after(device);
  const auto pull = [&] {
    const auto report = replica.pull();
    ASSERT_TRUE(report.ok()) << report.status().to_string();
    EXPECT_EQ(replica.version(), head_of(store));
    EXPECT_TRUE(device.is(model));
  };
  pull();  // from nothing
  for (int i = 0; i < 3; ++i) {
    model.step();
    publish(&publisher, model.views());
    pull();
  }
  for (int i = 0; i < 4; ++i) {  // several hops at once
    model.step();
    publish(&publisher, model.views());
  }
  pull();
  model.step(1.0);
  publish(&publisher, model.views(), true);  // stored whole
  pull();
}

TEST_F(LiveModelTest, PrepareWritesNothing) {
  SKIP_WITHOUT_GPU();
  Publisher publisher = open();
  publish(&publisher, model.views());
  DeviceModel device(model);
  const Model before = model;
  TensorReplica replica = order_after(device);
  ASSERT_TRUE(replica.pull().ok());
  model.step();
  publish(&publisher, model.views());
  ASSERT_TRUE(replica.prepare().ok());
  EXPECT_TRUE(device.is(before));
  ASSERT_TRUE(replica.commit().ok());
  EXPECT_TRUE(device.is(model));
}

// Whether decoded before the pause or in it, a modification in between is detected.
TEST_F(LiveModelTest, DetectsAndRepairsChangesBetweenPrepareAndCommit) {
  SKIP_WITHOUT_GPU();
  PublishOptions options;
  options.codec = "tight";
  Publisher publisher = open(options);
  publish(&publisher, model.views());
  for (const std::optional<uint64_t> kept :
       {std::optional<uint64_t>(), std::optional<uint64_t>(0)}) {
    DeviceModel device(model);
    TensorReplica replica = order_after(device, true, kept);
    ASSERT_TRUE(replica.pull().ok());
    model.step();
    publish(&publisher, model.views());
    const auto prepared = replica.prepare();
    ASSERT_TRUE(prepared.ok()) << prepared.status().to_string();
    EXPECT_EQ(prepared->staged_device_bytes > 0, !kept);
    const auto live = device.live(model);
    for (const size_t at : {size_t{0}, live[0].bytes.size() - 2}) {
      const uint8_t wrong[2] = {0x12, 0x34};
      ASSERT_GOOD(cuda::copy(live[0].bytes.data() + at, wrong, 2, nullptr));
    }
    ASSERT_GOOD(cuda::wait(nullptr));
    const auto committed = replica.commit();
    ASSERT_FALSE(committed.ok());
    EXPECT_FALSE(replica.version().has_value());
    const auto report = replica.pull();
    ASSERT_TRUE(report.ok()) << report.status().to_string();
    EXPECT_TRUE(device.is(model));
    // And continues from there.
    model.step();
    publish(&publisher, model.views());
    ASSERT_TRUE(replica.pull().ok());
    EXPECT_TRUE(device.is(model));
  }
}

TEST_F(LiveModelTest, DetectsAndRepairsAWrongBase) {
  SKIP_WITHOUT_GPU();
  Publisher publisher = open();
  publish(&publisher, model.views());
  DeviceModel device(model);
  TensorReplica replica = order_after(device);
  ASSERT_TRUE(replica.pull().ok());
  const auto live = device.live(model);
  const uint8_t wrong[2] = {0x12, 0x34};  // somebody writes into the weights
  ASSERT_GOOD(cuda::copy(live[0].bytes.data() + 1000, wrong, 2, nullptr));
  ASSERT_GOOD(cuda::wait(nullptr));
  model.step();
  publish(&publisher, model.views());
  const auto report = replica.pull();
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  EXPECT_TRUE(report->repaired);
  EXPECT_TRUE(device.is(model));
}

TEST_F(LiveModelTest, DamagedPartLeavesTheWeightsUnchanged) {
  SKIP_WITHOUT_GPU();
  Publisher publisher = open();
  publish(&publisher, model.views());
  DeviceModel device(model);
  const Model before = model;
  TensorReplica replica = order_after(device);
  ASSERT_TRUE(replica.pull().ok());
  model.step();
  publish(&publisher, model.views());
  for (const std::string& name : objects_of(*store, "parts/")) {
    std::string text = store->get(name, 1 << 24).value();
    text[text.size() - 3] ^= 1;
    ASSERT_GOOD(store->put(name, MemoryBody(text)));
  }
  EXPECT_FALSE(replica.prepare().ok());
  EXPECT_TRUE(device.is(before));
  EXPECT_EQ(replica.version(), 0);
}

TEST_F(LiveModelTest, PublishesBoxesOfRanks) {
  SKIP_WITHOUT_GPU();
  Publisher publisher = open();
  DeviceModel device(model);
  // The embedding in two boxes of columns, as a rank with both would hold it.
  const auto boxes = [&] {
    std::vector<PublishTensor> tensors = device.views(model);
    const TestTensor& embed = model.tensors[0];
    tensors.erase(tensors.begin());
    for (uint64_t half = 0; half < 2; ++half) {
      const Box box{{0, 32 * half}, {embed.shape[0], 32}};
      std::vector<uint8_t> contents(embed.bytes.size() / 2);
      copy_box_out(box, embed.dtype, embed.shape, embed.bytes, contents);
      halves_.emplace_back(contents);
      tensors.push_back(
          {{embed.name, embed.dtype, embed.shape, {halves_.back().data(), contents.size()}},
           box,
           Memory::kCuda});
    }
    return tensors;
  };
  publish(&publisher, boxes());
  DeviceModel replica_device(model);
  TensorReplica replica = order_after(replica_device);
  for (int i = 0; i < 3; ++i) {
    model.step();
    device.become(model);
    publish(&publisher, boxes());
    const auto report = replica.pull();
    ASSERT_TRUE(report.ok()) << report.status().to_string();
    EXPECT_TRUE(replica_device.is(model));
  }
}

}  // namespace
}  // namespace deltawire::testing
