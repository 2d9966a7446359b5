#include "store/metered_store.h"

#include "conformance.h"
#include "fake_clock.h"
#include "faulty.h"
#include "test_files.h"

namespace deltawire::testing {
INSTANTIATE_TEST_SUITE_P(Metered, StoreConformance, ::testing::Values(StoreCase{[] {
                           return OpenedStore{
                               std::make_shared<MeteredStore>(std::make_shared<MemoryStore>(),
                                                              std::make_shared<StoreMetrics>()),
                               ""};
                         }}));

TEST(MeteredStore, CountsCallsBytesErrorsAndTime) {
  FakeClock clock;
  auto metrics = std::make_shared<StoreMetrics>();
  auto faulty = std::make_shared<FaultyStore>(
      std::make_shared<MemoryStore>(), faults("slow:ms=500,unavailable:n=2:op=put"), clock.clock());
  MeteredStore store(faulty, metrics, clock.clock());
  const auto expect = [&](StoreOperation operation, OperationCounts expected) {
    const OperationCounts got = metrics->counts(operation);
    const std::string name(store_operation_name(operation));
    EXPECT_EQ(got.calls, expected.calls) << name;
    EXPECT_EQ(got.errors, expected.errors) << name;
    EXPECT_EQ(got.bytes, expected.bytes) << name;
    EXPECT_NEAR(got.seconds, double(expected.calls) * 0.5, 1e-6) << name;
  };
  EXPECT_TRUE(store.put("a", MemoryBody("12345")).ok());
  EXPECT_FALSE(store.put("a", MemoryBody("12345")).ok());  // injected: no byte was moved
  expect(StoreOperation::kPut, {.calls = 2, .errors = 1, .bytes = 5});
  EXPECT_TRUE(store.put_if_absent("b", MemoryBody("123")).ok());
  EXPECT_FALSE(store.put_if_absent("b", MemoryBody("123")).ok());  // an answer, no error
  expect(StoreOperation::kPutIfAbsent, {.calls = 2, .errors = 0, .bytes = 3});
  EXPECT_TRUE(store.stat("a").ok());
  EXPECT_FALSE(store.stat("missing").ok());
  expect(StoreOperation::kStat, {.calls = 2});
  EXPECT_TRUE(store.get("a", 10).ok());
  EXPECT_FALSE(store.get("a", 1).ok());  // too large: an error
  expect(StoreOperation::kGet, {.calls = 2, .errors = 1, .bytes = 5});
  std::vector<uint8_t> out(4);
  EXPECT_TRUE(store.read("a", 1, out).ok());
  EXPECT_FALSE(store.read("a", 2, out).ok());
  expect(StoreOperation::kRead, {.calls = 2, .errors = 1, .bytes = 4});
  NoSink sink;
  EXPECT_TRUE(store.download("a", 5, &sink).ok());
  expect(StoreOperation::kDownload, {.calls = 1, .bytes = 5});
  EXPECT_TRUE(store.list("", "", 10).ok());
  expect(StoreOperation::kList, {.calls = 1});
  EXPECT_TRUE(store.remove("a").ok());
  expect(StoreOperation::kRemove, {.calls = 1});
  const OperationCounts total = metrics->total();
  EXPECT_EQ(total.calls, 13u);
  EXPECT_EQ(total.errors, 3u);
  EXPECT_EQ(total.bytes, 22u);
  EXPECT_NEAR(total.seconds, 6.5, 1e-6);
}

TEST(StoreMetrics, NamesOfOperations) {
  std::string all;
  for (size_t i = 0; i < kNumStoreOperations; ++i) {
    (all += store_operation_name(StoreOperation(i))) += ' ';
  }
  EXPECT_EQ(all, "put put_if_absent stat get read download list remove ");
}

}  // namespace deltawire::testing
