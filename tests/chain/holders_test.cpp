#include <thread>

#include "chain/heartbeat.h"
#include "support/test_chain.h"

namespace deltawire::testing {
namespace {

class HoldersTest : public ::testing::Test {
 protected:
  HoldersTest() {
    for (int i = 0; i < 3; ++i) chain_.publish_step();
  }
  Identity version(uint64_t number) { return must(chain_.chain.version(number)).identity(); }
  void beat(const std::string& name, std::optional<Identity> held, const std::string& error = "") {
    Heartbeat beat{.name = name, .held = std::move(held), .interval_seconds = 60, .error = error};
    EXPECT_TRUE(write_heartbeat(*chain_.store(), beat).ok());
  }
  TestChain chain_{std::make_shared<MemoryStore>("holders")};
};

TEST_F(HoldersTest, ReportsWhichReplicasLackAVersion) {
  Identity other_run = version(2), other_history = version(1);
  other_run.run = std::string(32, 'f');
  other_history.manifest = std::string(64, 'f');
  beat("a", version(1));
  beat("b", version(2));
  beat("c", version(0), "no space");
  beat("d", other_run);
  beat("e", other_history);
  beat("f", {});
  const HoldersReport report =
      must(chain_.chain.wait_until_held({.version = 1, .timeout_seconds = 0}));
  EXPECT_FALSE(report.complete);
  EXPECT_EQ(report.version, version(1));
  EXPECT_EQ(report.num_holding, 2U);
  std::vector<std::string> missing;
  for (const Holder& one : report.replicas) missing.push_back(one.name + ": " + one.missing);
  EXPECT_EQ(missing,
            (std::vector<std::string>{"a: ", "b: ", "c: is at version 0, failed: no space",
                                      "d: holds run " + other_run.run, "e: holds another version 1",
                                      "f: holds no version"}));
  EXPECT_TRUE(must(chain_.chain.wait_until_held({.version = 1, .replicas = 2})).complete);
  EXPECT_TRUE(is_failure(chain_.chain.wait_until_held({.version = 9}), Code::kNotFound));
}

TEST_F(HoldersTest, WaitsForLiveReplicasOnly) {
  beat("late", version(1));
  const auto memory = std::static_pointer_cast<MemoryStore>(chain_.store());
  memory->set_clock(unix_seconds() - 1000);
  beat("gone", version(0));
  memory->set_clock(0);
  std::thread replica([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    beat("late", version(2));
  });
  const HoldersReport report = must(chain_.chain.wait_until_held());
  replica.join();
  EXPECT_TRUE(report.complete);
  ASSERT_EQ(report.replicas.size(), 1U);
  EXPECT_EQ(report.replicas[0].held, version(2));
  // More replicas than exist: waits until the timeout or a cancellation.
  EXPECT_FALSE(
      must(chain_.chain.wait_until_held({.replicas = 2, .timeout_seconds = 0.05})).complete);
  EXPECT_TRUE(
      is_failure(chain_.chain.wait_until_held({.replicas = 2, .cancelled = [] { return true; }}),
                 Code::kCancelled));
}

}  // namespace
}  // namespace deltawire::testing
