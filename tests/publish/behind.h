// A publisher whose snapshot on disk stays behind the chain, in several stores and sizes.
#pragma once

#include <gtest/gtest.h>

#include <atomic>

#include "chain/names.h"
#include "deltawire/replica.h"
#include "store/directory_store.h"
#include "support/hooked_store.h"
#include "support/published_model.h"

namespace deltawire::testing {

inline constexpr uint64_t kMostBehind = 8;

struct Behind {
  const char* name;
  bool local;      // a store in a folder
  uint64_t scale;  // of the model
  uint64_t memory_bytes;
};

class BehindTest : public ::testing::TestWithParam<Behind> {
 protected:
  TempFolder folder;
  std::shared_ptr<HookedStore> store = std::make_shared<HookedStore>(
      GetParam().local
          ? std::shared_ptr<Store>(std::make_shared<DirectoryStore>(folder.path() / "store"))
          : std::make_shared<MemoryStore>());
  Model model = Model::make(GetParam().scale);
  PublishOptions options = testing::with_schema_change();
  std::atomic<size_t> num_reads = 0;   // of weights, from the store
  std::vector<uint8_t> left_, right_;  // halves of a tensor
  std::optional<Publisher> publisher;

  void SetUp() override {
    options.limits.threads = 2;
    options.limits.memory_bytes = GetParam().memory_bytes;
    options.snapshot = SnapshotInFolder{folder.path() / "snapshot", false, SnapshotAdvance::kLater};
    store->before_get = [this](std::string_view name) {
      if (name.starts_with(kPartPrefix) || name.starts_with(kFullPrefix)) ++num_reads;
      return Status();
    };
    reopen();
  }
  // As another process would.
  void reopen() {
    publisher.reset();
    auto opened = Publisher::open(store, options);
    ASSERT_TRUE(opened.ok()) << opened.status().to_string();
    publisher.emplace(std::move(*opened));
  }
  PublishReport publish(const std::vector<PublishTensor>& tensors) {
    auto report = publisher->publish(tensors);
    EXPECT_TRUE(report.ok()) << report.status().to_string();
    return report.ok() ? std::move(*report) : PublishReport{};
  }
  // The next version, without a warning, and it is what was published.
  void publish_next() {
    const PublishReport report = publish(model.views());
    EXPECT_TRUE(report.committed);
    for (const std::string& warning : report.warnings) ADD_FAILURE() << warning;
    EXPECT_TRUE(holds(store, report.version, model)) << "version " << report.version;
  }
  void publish_versions(uint64_t count) {
    for (uint64_t i = 0; i < count; ++i) {
      publish_next();
      model.step();
    }
  }
  std::filesystem::path checkpoint() const { return folder.path() / "snapshot" / "checkpoint"; }
  uint64_t held() const {
    const auto state = read_replica_state(checkpoint());
    EXPECT_TRUE(state.ok() && !state->patching_to);
    return state.ok() ? state->version : UINT64_MAX;
  }
  std::vector<std::filesystem::path> parts() const {
    std::vector<std::filesystem::path> found;
    std::error_code error;
    for (const auto& entry :
         std::filesystem::directory_iterator(folder.path() / "snapshot" / "parts", error)) {
      found.push_back(entry.path());
    }
    std::sort(found.begin(), found.end());
    return found;
  }
};

inline const auto kBehindStores = ::testing::Values(
    Behind{"Remote", false, 24, uint64_t{2} << 30}, Behind{"Local", true, 24, uint64_t{2} << 30},
    Behind{"Blocks", false, 60, uint64_t{2} << 30},
    Behind{"Slices", true, 100, uint64_t{32} << 20});
inline std::string behind_name(const ::testing::TestParamInfo<Behind>& info) {
  return info.param.name;
}

}  // namespace deltawire::testing
