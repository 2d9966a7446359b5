// A long run in one process: thousands of versions are published and followed, and old ones are
// collected, while memory and descriptors do not grow.
#include <malloc.h>

#include <cstdlib>

#include "chain/chain.h"
#include "deltawire/checkpoint.h"
#include "deltawire/publisher.h"
#include "deltawire/replica.h"
#include "test_files.h"

namespace deltawire::testing {
namespace {

size_t open_descriptors() {
  size_t count = 0;
  for ([[maybe_unused]] const auto& entry : fs::directory_iterator("/proc/self/fd")) ++count;
  return count;
}

// Anonymous memory only: mapped files come and go with the page cache.
uint64_t anonymous_kilobytes() {
  ::malloc_trim(0);
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("RssAnon:")) return std::strtoull(line.c_str() + 8, nullptr, 10);
  }
  return 0;
}

class Model {
 public:
  Model() {
    for (size_t i = 0; i < weights_.size(); ++i) weights_[i].resize(2 * (1000 + 500 * i), 7);
  }
  void step() {
    for (auto& tensor : weights_) {
      for (int i = 0; i < 12; ++i) ++tensor[random_() % tensor.size()];
    }
  }
  std::vector<PublishTensor> views() const {
    std::vector<PublishTensor> views;
    for (size_t i = 0; i < weights_.size(); ++i) {
      views.push_back({{"layer." + std::to_string(i) + ".weight",
                        DType::kBF16,
                        {weights_[i].size() / 2},
                        weights_[i]},
                       {}});
    }
    return views;
  }
  void expect_equal(const fs::path& local) const {
    const auto checkpoint = must(Checkpoint::open(local));
    for (const PublishTensor& tensor : views()) {
      const CheckpointTensor* got = checkpoint.find(tensor.view.name);
      ASSERT_NE(got, nullptr);
      EXPECT_TRUE(std::equal(got->view.bytes.begin(), got->view.bytes.end(),
                             tensor.view.bytes.begin(), tensor.view.bytes.end()));
    }
  }

 private:
  std::vector<std::vector<uint8_t>> weights_ = std::vector<std::vector<uint8_t>>(6);
  std::mt19937_64 random_{11};
};

TEST(Soak, ThousandsOfVersionsInConstantMemory) {
  constexpr uint64_t kVersions = 2000, kWarm = 400, kCollectEvery = 100;
  const TempFolder folder;
  const auto store = must(open_store((folder.path() / "store").string(), {}));
  auto publisher = must(Publisher::open(store, {.limits = {.threads = 1}}));
  ReplicaOptions options{.limits = {.threads = 1}};
  auto replica = Replica::open(store, folder.path() / "replica", options);

  Model model;
  size_t descriptors = 0;
  uint64_t memory = 0;
  for (uint64_t version = 0; version <= kVersions; ++version) {
    model.step();
    ASSERT_EQ(must(publisher.publish(model.views())).version, version);
    if (!replica.ok()) replica = Replica::open(store, folder.path() / "replica", options);
    ASSERT_TRUE(replica.ok()) << replica.status().to_string();
    ASSERT_EQ(must(replica->pull()).version, version);
    if (version % kCollectEvery == 0 && version != 0) {
      const auto chain = must(Chain::open(store, {}));
      must(chain.collect_garbage({.keep = 20, .grace_seconds = 0}));
      model.expect_equal(folder.path() / "replica");
    }
    if (version == kWarm) {
      descriptors = open_descriptors();
      memory = anonymous_kilobytes();
    }
  }
  // A heartbeat may be in progress.
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (open_descriptors() > descriptors && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_LE(open_descriptors(), descriptors);
  EXPECT_LE(anonymous_kilobytes(), memory + 4096);
  model.expect_equal(folder.path() / "replica");
}

}  // namespace
}  // namespace deltawire::testing
