// The S3 store against a real server without conditional PUT: OpenStack Swift.

#include "conformance.h"
#include "s3_gateway.h"
#include "store/s3_store.h"
#include "test_files.h"

namespace deltawire::testing {
namespace {

constexpr char kNoSwift[] = "skipped: no OpenStack Swift";

// Returns null if there is no server.
std::shared_ptr<Store> open_swift() {
  static const bool found = load_server("DELTAWIRE_SWIFT_DIR");
  if (!found) return nullptr;
  StoreOptions options{.endpoint = std::getenv("DELTAWIRE_SWIFT_ENDPOINT")};
  make_bucket(kBucket, options);
  return open_fresh_store(options);
}

INSTANTIATE_TEST_SUITE_P(S3Swift, StoreConformance,
                         ::testing::Values(StoreCase{[] {
                                                       return OpenedStore{open_swift(), kNoSwift};
                                                     },
                                                     false}));

TEST(S3Swift, MissingConditionalPutIsDetected) {
  const auto store = open_swift();
  if (store == nullptr) GTEST_SKIP() << kNoSwift;
  EXPECT_FALSE(must(store->capabilities()).put_if_absent);
  EXPECT_FAILS(store->put_if_absent("v/1", MemoryBody("x")), kUnsupported, "no conditional PUT");
  EXPECT_FAILS(store->stat("v/1"), kNotFound);
}

}  // namespace
}  // namespace deltawire::testing
