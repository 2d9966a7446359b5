// Cost does not grow with age: requests on a chain of 100,000 versions.
#include <gtest/gtest.h>

#include "chain/plan.h"
#include "made_chain.h"

namespace deltawire::testing {
namespace {

constexpr uint64_t kVersions = 100'000;
constexpr uint64_t kWhole = 1'000'000'000, kDelta = 10'000'000;
constexpr uint64_t kBound = 64;

// Anchors every 256 versions, merged deltas of 4, 16 and 64 between them.
const MadeChain& long_chain() {
  static const MadeChain* const made = [] {
    auto* chain = new MadeChain;
    for (uint64_t v = 0; v < kVersions; ++v) {
      chain->add(v == 0 ? kWhole : kDelta);
      if (v % 256 == 0 && v != 0) chain->add_hop({}, v, kWhole);
      for (const uint64_t span : {4, 16, 64}) {
        if (v != 0 && v % span == 0) chain->add_hop(v - span, v, kDelta * span * 3 / 4);
      }
    }
    return chain;
  }();
  return *made;
}

uint64_t requests_of(const std::function<void()>& work) {
  long_chain().store->requests = 0;
  work();
  return long_chain().store->requests;
}

TEST(LongChainSlow, TheHeadIsFoundInFewRequests) {
  const MadeChain& made = long_chain();
  EXPECT_LE(requests_of([&] { EXPECT_EQ(made.chain.head().value(), kVersions - 1); }), 4U);
  for (const char* hint : {"0", "99990", "50000", "100000", "9999999999", "x"}) {
    ASSERT_TRUE(made.memory->put(kHeadName, MemoryBody(std::string_view(hint))).ok());
    EXPECT_LE(requests_of([&] { EXPECT_EQ(made.chain.head().value(), kVersions - 1); }), kBound)
        << hint;
  }
  ASSERT_TRUE(made.memory->put(kHeadName, MemoryBody(std::string_view("99999"))).ok());
}

TEST(LongChainSlow, ACatchUpIsPlannedInFewRequests) {
  const MadeChain& made = long_chain();
  const uint64_t head = kVersions - 1;
  for (const std::optional<uint64_t> held :
       {std::optional<uint64_t>(), {0}, {1}, {50'000}, {99'000}, {99'700}, {99'990}, {head - 1}}) {
    std::optional<Held> start;
    if (held) start = Held{*held, made.versions[*held].digest};
    uint64_t hops = 0, bytes = 0;
    const uint64_t requests = requests_of([&] {
      const Plan plan = plan_catch_up(made.chain, start, head).value();
      hops = plan.hops.size();
      bytes = plan.bytes;
    });
    EXPECT_LE(requests, kBound) << "from " << held.value_or(0);
    EXPECT_LE(requests, hops + 10) << "from " << held.value_or(0);
    EXPECT_LE(bytes, kWhole + 256 * kDelta);
  }
}

}  // namespace
}  // namespace deltawire::testing
