// The checks of `deltawire doctor` for a store: defects are named, and nothing is left behind. The
// conformance suite has every good store pass them.
#include "store/probe.h"

#include <algorithm>

#include "base/clock.h"
#include "faulty.h"
#include "store/forwarding_store.h"
#include "store/memory_store.h"
#include "test_files.h"

namespace deltawire::testing {
namespace {

// Returns the failed steps in one line: "write: i/o error".
std::string failures(const ProbeReport& report) {
  std::string text;
  for (const ProbeStep& step : report.steps) {
    if (step.status.ok()) continue;
    text +=
        (text.empty() ? "" : ", ") + step.what + ": " + std::string(code_name(step.status.code()));
  }
  return text;
}

std::vector<std::string> names(Store& store) {
  std::vector<std::string> found;
  for (const ObjectInfo& object : must(store.list("", "", kMaxListed)))
    found.push_back(object.name);
  return found;
}

const std::function<bool()> never = [] { return false; };

struct FaultyCase {
  const char* faults;
  const char* failures;
  bool stays = false;  // nobody can remove it
};

TEST(Probe, NamesWhatAStoreCannotDo) {
  const FaultyCase cases[] = {
      {"fail:op=put-if-absent", "write: i/o error"},
      {"duplicate:op=put-if-absent", "write: unavailable"},  // it is there, the answer was lost
      {"fail:op=put-if-absent:n=2", "put if absent: i/o error"},
      {"fail:op=get", "read: i/o error"},
      {"flip:op=get", "read: corruption"},
      {"fail:op=list:name=doctor/:n=1", "list: i/o error"},
      {"stale-list:calls=9", "list: unavailable"},
      {"fail:op=remove", "delete: i/o error", true},
      {"fail:op=put", "transfer: i/o error"},
      {"tear:op=put", "transfer: corruption"},
      {"flip:op=download", "transfer: corruption"},
      {"flip:op=read", "transfer: corruption"},
  };
  for (const FaultyCase& one : cases) {
    const auto memory = std::make_shared<MemoryStore>();
    FaultyStore store(memory, faults(one.faults));
    EXPECT_EQ(failures(probe_store(store, never)), one.failures) << one.faults;
    // Only a small object can stay: it is tried before the large one.
    const auto left = must(memory->list("", "", kMaxListed));
    EXPECT_EQ(left.size(), one.stays ? 1U : 0U) << one.faults;
    for (const ObjectInfo& object : left) EXPECT_LT(object.size_bytes, 100U);
  }
}

class Lying final : public ForwardingStore {
 public:
  using ForwardingStore::ForwardingStore;
  bool conditional = true;
  Result<Capabilities> capabilities() override { return Capabilities{conditional}; }
  Status put_if_absent(std::string_view name, const Body& body) override { return put(name, body); }
};

TEST(Probe, DetectsIgnoredConditions) {
  Lying store(std::make_shared<MemoryStore>());
  EXPECT_EQ(failures(probe_store(store, never)), "put if absent: unsupported");
  store.conditional = false;  // it says so itself
  const ProbeReport report = probe_store(store, never);
  EXPECT_EQ(failures(report), "");
  EXPECT_FALSE(report.put_if_absent);
  EXPECT_EQ(names(store), std::vector<std::string>());
}

TEST(Probe, RemovesItsObjectsWhenCancelled) {
  for (int calls = 0; calls < 6; ++calls) {
    MemoryStore store;
    int asked = 0;
    const ProbeReport report = probe_store(store, [&] { return asked++ >= calls; });
    EXPECT_NE(failures(report).find("cancelled"), std::string::npos) << calls << failures(report);
    EXPECT_EQ(names(store), std::vector<std::string>()) << calls;
    EXPECT_LE(asked, calls + 1);
    if (calls == 4) break;  // there are five steps
  }
}

TEST(Probe, ReportsTheClockDifference) {
  MemoryStore store;
  store.set_clock(unix_seconds() + 1000);
  const auto ahead = probe_store(store, never).clock_ahead;
  ASSERT_TRUE(ahead);
  EXPECT_NEAR(double(*ahead), 1000, 60);
  store.set_clock(unix_seconds() - 1000);
  EXPECT_NEAR(double(probe_store(store, never).clock_ahead.value_or(0)), -1000, 60);
}

TEST(Probe, RemovesObjectsOfKilledProbes) {
  MemoryStore store;
  store.set_clock(1'800'000'000);
  const std::string id(16, 'a');
  must(store.put("doctor/" + id + "/large", MemoryBody("old")));
  // Objects of others.
  const std::vector<std::string> others = {"doctor/" + id + "/large/of.txt",
                                           "doctor/" + id + "/notes", "doctor/" + id + "/small",
                                           "doctor/0123/large", "doctor/patients.csv"};
  for (const std::string& name : others) must(store.put(name, MemoryBody("others")));
  store.set_clock(1'800'003'000);
  const std::string young = "doctor/" + std::string(16, 'b') + "/large";
  must(store.put(young, MemoryBody("of one that may be at work")));
  store.set_clock(1'800'004'000);
  EXPECT_EQ(failures(probe_store(store, never)), "");
  std::vector<std::string> left = others;
  left.push_back(young);
  std::sort(left.begin(), left.end());
  EXPECT_EQ(names(store), left);
}

}  // namespace
}  // namespace deltawire::testing
