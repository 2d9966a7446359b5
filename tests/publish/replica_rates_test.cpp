#include "publish/replica_rates.h"

#include <gtest/gtest.h>

#include "chain/heartbeat.h"
#include "deltawire/tensor_replica.h"
#include "store/memory_store.h"
#include "support/published_model.h"

namespace deltawire {
namespace {

constexpr int64_t kNow = 1'800'000'000;

void say(Store& store, const std::string& name, std::optional<Fetched> fetched,
         int64_t seen = kNow) {
  Heartbeat beat;
  beat.name = name;
  beat.host = "host";
  beat.seen = seen;
  beat.fetched = fetched;
  ASSERT_TRUE(write_heartbeat(store, beat).ok());
}

TEST(FetchRates, AreTheMiddleOfWhatLiveReplicasSay) {
  MemoryStore store;
  EXPECT_EQ(fetch_rates(store, kNow).num_replicas, 0U);
  say(store, "slow", Fetched{1'000'000, 1'000'000});
  EXPECT_EQ(fetch_rates(store, kNow).middle, 1e6);
  say(store, "usual", Fetched{5'000'000, 1'000'000});
  say(store, "quick", Fetched{9'000'000, 1'000'000});
  say(store, "older", std::nullopt);
  say(store, "nothing", Fetched{0, 1});
  say(store, "gone", Fetched{1, 1'000'000}, kNow - 3601);
  ASSERT_TRUE(store.put("replicas/damaged.json", MemoryBody("{")).ok());
  EXPECT_EQ(fetch_rates(store, kNow).num_replicas, 3U);
  EXPECT_EQ(fetch_rates(store, kNow).middle, 5e6);
}

TEST(FetchRates, NoTimeAtAllIsNoDivisionByZero) {
  MemoryStore store;
  say(store, "quick", Fetched{7, 0});
  EXPECT_EQ(fetch_rates(store, kNow).middle, 7e6);
}

TEST(FetchRates, OfALargeFleetAFewAreAsked) {
  MemoryStore store;
  for (int i = 0; i < 40; ++i) say(store, std::to_string(i), Fetched{100, 1});
  EXPECT_EQ(fetch_rates(store, kNow).num_replicas, 16U);
}

// What a replica of the chain really writes reaches the publisher's reason.
TEST(FetchRates, OfAReplicaThatFollowsAreInThePublishersReason) {
  const testing::TempFolder folder;
  const std::shared_ptr<Store> store = std::make_shared<MemoryStore>();
  testing::Model model = testing::Model::make(), copy = model;
  PublishOptions options;
  options.codec = "fastest";
  Publisher publisher = Publisher::open(store, options).value();
  ASSERT_TRUE(publisher.publish(model.views()).ok());
  std::vector<LiveTensor> live;
  for (testing::TestTensor& tensor : copy.tensors) {
    live.push_back({tensor.name, tensor.dtype, tensor.shape, tensor.bytes});
  }
  TensorReplicaOptions how;
  how.scratch = folder.path();
  model.step();
  ASSERT_TRUE(publisher.publish(model.views()).ok());
  {
    auto replica = TensorReplica::open(store, live, how);
    ASSERT_TRUE(replica.ok()) << replica.status().to_string();
    ASSERT_TRUE(replica->pull().ok());
  }  // its last heartbeat is sent
  const std::string expected = "(measured by a replica)";
  std::string reason;
  // The store is asked beside a publish, which does not wait: usually the second knows.
  for (int i = 0; i < 200 && reason.find(expected) == std::string::npos; ++i) {
    model.step();
    reason = publisher.publish(model.views())->codec_reason;
  }
  EXPECT_NE(reason.find(expected), std::string::npos) << reason;
}

}  // namespace
}  // namespace deltawire
