// A version fetched into memory goes the way that replicas go.
#include "replica/memory_state.h"

#include "chain/plan.h"
#include "store/memory_store.h"
#include "support/test_chain.h"

namespace deltawire::testing {
namespace {

// Versions 0 to 2, and a merged delta from 0 to 2 beside the two deltas.
class MemoryStateTest : public ::testing::Test {
 protected:
  std::shared_ptr<Store> store = std::make_shared<MemoryStore>();
  std::vector<TestTensor> tensors = {make_tensor("a", DType::kBF16, {64, 32}, 1),
                                     make_tensor("b", DType::kF32, {40}, 2)};

  void SetUp() override {
    TestChain chain(store);
    chain.publish_full(tensors);
    for (uint64_t version = 1; version <= 2; ++version) {
      for (TestTensor& tensor : tensors) change(&tensor, 0.1, version);
      chain.publish_delta(tensors);
    }
    chain.add_merged(0, 2);
  }

  // The first part after the seed on the cheapest way to version 2 that does without `avoid`.
  std::string next_part(const std::set<std::string>& avoid = {}) {
    const auto chain = Chain::open(store, {});
    const auto plan = must(plan_catch_up(*chain, {}, 2, nullptr, avoid));
    return plan.hops.at(1).parts.at(0).name;
  }
  Result<MemoryState> fetch() { return fetch_state(*Chain::open(store, {}), 2, nullptr, {}); }

  void expect_version_2(const Result<MemoryState>& state) {
    ASSERT_TRUE(state.ok()) << state.status().to_string();
    ASSERT_EQ(state->size(), tensors.size());
    for (const TestTensor& tensor : tensors) {
      const Bytes got = state->at(tensor.name).bytes;
      EXPECT_TRUE(std::equal(got.begin(), got.end(), tensor.bytes.begin(), tensor.bytes.end()))
          << tensor.name;
    }
  }
};

TEST_F(MemoryStateTest, ADamagedPartIsGoneAround) {
  expect_version_2(fetch());
  std::string bytes = store->get(next_part(), UINT64_MAX).value();
  bytes[bytes.size() / 2] ^= 1;
  ASSERT_TRUE(store->put(next_part(), MemoryBody(bytes)).ok());
  expect_version_2(fetch());
}

TEST_F(MemoryStateTest, APartThatIsGoneIsGoneAround) {
  ASSERT_TRUE(store->remove(next_part()).ok());
  expect_version_2(fetch());
}

TEST_F(MemoryStateTest, WhereNoWayIsLeftTheFirstBadPartIsNamed) {
  const std::string first = next_part(), second = next_part({first});
  ASSERT_NE(first, second);
  ASSERT_TRUE(store->remove(first).ok());
  ASSERT_TRUE(store->remove(second).ok());
  EXPECT_FAILS(fetch(), Code::kNotFound, first);
}

}  // namespace
}  // namespace deltawire::testing
