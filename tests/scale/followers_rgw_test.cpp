// Fifty replicas of one bucket: the number of requests that each version costs per replica.

#include <cstdio>
#include <deque>
#include <map>
#include <mutex>

#include "deltawire/publisher.h"
#include "deltawire/tensor_replica.h"
#include "store/s3_gateway.h"
#include "support/hooked_store.h"
#include "support/published_model.h"

namespace deltawire::testing {
namespace {

constexpr size_t kFollowers = 50;
constexpr uint64_t kVersions = 4;

// Requests of all followers, including retries.
struct Counts {
  std::map<std::string, uint64_t, std::less<>> calls = {};
  uint64_t total = 0;

  Counts since(const Counts& before) const {
    Counts counts = *this;
    for (const auto& [call, count] : before.calls) counts.calls[call] -= count;
    counts.total -= before.total;
    return counts;
  }
  // A heartbeat, which is sent by the clock, takes two requests: it reads the name's owner and
  // puts.
  uint64_t without_heartbeats() { return total - 2 * calls["put"]; }
  void print(const char* what, double each) const {
    std::printf("%-22s %5.2f requests:", what, double(total) / each);
    for (const auto& [call, count] : calls) {
      if (count != 0) std::printf("  %s %.2f", call.c_str(), double(count) / each);
    }
    std::printf("\n");
  }
};

class Counter {
 public:
  // Wraps a store to count its requests.
  Result<std::shared_ptr<Store>> around(std::shared_ptr<Store> store) {
    auto hooked = std::make_shared<HookedStore>(std::move(store));
    hooked->before = [this](std::string_view call, std::string_view) {
      const std::lock_guard lock(mutex_);
      ++counts_.calls[std::string(call)];
      ++counts_.total;
      return Status();
    };
    return std::shared_ptr<Store>(std::move(hooked));
  }
  Counts counts() {
    const std::lock_guard lock(mutex_);
    return counts_;
  }

 private:
  std::mutex mutex_;
  Counts counts_;
};

// Threads of one process, each with its own store and model.
class Followers {
 public:
  Followers(const std::string& url, const Model& model, Counter* counter) {
    StoreOptions options = gateway_options();
    options.wrap = [counter](auto store) { return counter->around(std::move(store)); };
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

  // Every follower pulls once, all at the same time.
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

TEST(FollowersRgw, FiftyReplicasNeedFewRequestsEachPerVersion) {
  REQUIRE_GATEWAY();
  const std::string url =
      std::string("s3://") + testing::kBucket + "/fifty-" + std::to_string(std::random_device()());
  std::shared_ptr<Store> store = must(open_store(url, gateway_options()));
  auto publisher = must(
      Publisher::open(store, {.anchors = Anchors{.by_bytes = false}, .limits = {.threads = 1}}));
  Model model = Model::make();
  ASSERT_TRUE(publisher.publish(model.views()).ok());
  Counter counter;
  Followers followers(url, model, &counter);
  followers.pull_all(0);
  Counts before = counter.counts();
  for (uint64_t version = 1; version <= kVersions; ++version) {
    model.step();
    ASSERT_TRUE(publisher.publish(model.views()).ok());
    followers.pull_all(version);
  }
  Counts versions = counter.counts().since(before);
  followers.pull_all(kVersions);  // heartbeats are written meanwhile
  before = counter.counts();
  followers.pull_all(kVersions);
  Counts idle = counter.counts().since(before);
  for (size_t i = 0; i < kFollowers; ++i) {
    for (size_t t = 0; t < model.tensors.size(); ++t) {
      ASSERT_EQ(followers.model(i).tensors[t].bytes, model.tensors[t].bytes);
    }
  }
  versions.print("a version, a replica", double(kFollowers * kVersions));
  idle.print("a look, nothing new", double(kFollowers));
  // Five requests per pull, and one for the part; one more for a heartbeat that has read its name
  // and not yet written.
  EXPECT_LE(versions.without_heartbeats(), 7 * kFollowers * kVersions);
  EXPECT_EQ(versions.calls["list"], 0U);
  EXPECT_LE(idle.without_heartbeats(), 6 * kFollowers);
  EXPECT_EQ(idle.calls["list"], 0U);
}

}  // namespace
}  // namespace deltawire::testing
