// Fifty replicas of one bucket: how many requests a version costs each of them.

#include <array>
#include <cstdio>
#include <deque>

#include "deltawire/publisher.h"
#include "deltawire/tensor_replica.h"
#include "store/metered_store.h"
#include "store/s3_gateway.h"
#include "support/published_model.h"

namespace deltawire::testing {
namespace {

constexpr size_t kFollowers = 50;
constexpr uint64_t kVersions = 4;

struct Counts {
  std::array<uint64_t, kNumStoreOperations> calls = {};
  uint64_t total = 0;

  static Counts of(const StoreMetrics& metrics) {
    Counts counts;
    for (size_t i = 0; i < kNumStoreOperations; ++i) {
      counts.calls[i] = metrics.counts(StoreOperation(i)).calls;
      counts.total += counts.calls[i];
    }
    return counts;
  }
  Counts since(const Counts& before) const {
    Counts counts = *this;
    for (size_t i = 0; i < kNumStoreOperations; ++i) counts.calls[i] -= before.calls[i];
    counts.total -= before.total;
    return counts;
  }
  void print(const char* what, double each) const {
    std::printf("%-22s %5.2f requests:", what, double(total) / each);
    for (size_t i = 0; i < kNumStoreOperations; ++i) {
      if (calls[i] == 0) continue;
      std::printf("  %s %.2f", std::string(store_operation_name(StoreOperation(i))).c_str(),
                  double(calls[i]) / each);
    }
    std::printf("\n");
  }
};

// Threads of one process, each with a store and a model of its own.
class Followers {
 public:
  Followers(const std::string& url, const Model& model, std::shared_ptr<StoreMetrics> metrics) {
    StoreOptions options = gateway_options();
    options.metrics = std::move(metrics);
    options.connections = 2;
    for (size_t i = 0; i < kFollowers; ++i) {
      models_.push_back(model);
      std::vector<LiveTensor> live;
      for (auto& tensor : models_.back().tensors) {
        live.push_back({tensor.name, tensor.dtype, tensor.shape, tensor.bytes});
      }
      TensorReplicaOptions how{.limits = {.threads = 1},
                               .name = "follower-" + std::to_string(i),
                               .scratch = scratch_.path()};
      replicas_.push_back(
          TensorReplica::open(open_store(url, options).value(), std::move(live), how).value());
    }
  }

  // One look of each at the store, all at once.
  void pull_all(uint64_t expected) {
    std::vector<std::thread> threads;
    std::vector<Status> outcomes(kFollowers);
    for (size_t i = 0; i < kFollowers; ++i) {
      threads.emplace_back([&, i] { outcomes[i] = replicas_[i].pull().status(); });
    }
    for (std::thread& thread : threads) thread.join();
    for (size_t i = 0; i < kFollowers; ++i) {
      ASSERT_TRUE(outcomes[i].ok()) << outcomes[i].to_string();
      ASSERT_EQ(replicas_[i].version(), expected);
    }
  }
  const Model& model(size_t i) const { return models_[i]; }
  void stop() { replicas_.clear(); }

 private:
  TempFolder scratch_;
  std::deque<Model> models_;
  std::vector<TensorReplica> replicas_;
};

TEST(FollowersRgw, AVersionTakesEachOfFiftyAFewRequests) {
  REQUIRE_GATEWAY();
  const std::string url =
      std::string("s3://") + testing::kBucket + "/fifty-" + std::to_string(std::random_device()());
  std::shared_ptr<Store> store = must(open_store(url, gateway_options()));
  auto publisher = must(
      Publisher::open(store, {.anchors = Anchors{.by_bytes = false}, .limits = {.threads = 1}}));
  Model model = Model::make();
  ASSERT_TRUE(publisher.publish(model.views()).ok());
  const auto metrics = std::make_shared<StoreMetrics>();
  Followers followers(url, model, metrics);
  followers.pull_all(0);
  Counts before = Counts::of(*metrics);
  for (uint64_t version = 1; version <= kVersions; ++version) {
    model.step();
    ASSERT_TRUE(publisher.publish(model.views()).ok());
    followers.pull_all(version);
  }
  const Counts versions = Counts::of(*metrics).since(before);
  followers.pull_all(kVersions);  // heartbeats are written meanwhile
  before = Counts::of(*metrics);
  followers.pull_all(kVersions);
  const Counts idle = Counts::of(*metrics).since(before);
  for (size_t i = 0; i < kFollowers; ++i) {
    for (size_t t = 0; t < model.tensors.size(); ++t) {
      ASSERT_EQ(followers.model(i).tensors[t].bytes, model.tensors[t].bytes);
    }
  }
  versions.print("a version, a replica", double(kFollowers * kVersions));
  idle.print("a look, nothing new", double(kFollowers));
  // Four for the look, the manifest among them; the part; and four for two heartbeats (whose name
  // it is, and the note itself). A slow machine adds a heartbeat a minute.
  EXPECT_LE(versions.total, 10 * kFollowers * kVersions);
  EXPECT_EQ(versions.calls[size_t(StoreOperation::kList)], 0U);
  EXPECT_LE(idle.total, 6 * kFollowers);
  EXPECT_EQ(idle.calls[size_t(StoreOperation::kList)], 0U);
}

}  // namespace
}  // namespace deltawire::testing
