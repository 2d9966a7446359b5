// `verify` and `inspect` on versions in other projects' formats.
#include "bridge/bridge_model.h"

namespace deltawire::testing {
namespace {

ForeignPath version_path(const BridgeFolder& folder, uint64_t version) {
  char name[32];
  std::snprintf(name, sizeof name, "source/weight_v%06u", unsigned(version));
  return recognise_foreign(folder.path(name)).value().value();
}

using ForeignPathTest = BridgeTest;

TEST_F(ForeignPathTest, RecognisesRootAndVersion) {
  folder.write_all(slime());
  const auto root = recognise_foreign(folder.path("source"));
  ASSERT_TRUE(root.ok() && *root);
  EXPECT_EQ((*root)->dialect, "slime");
  EXPECT_FALSE((*root)->version);
  EXPECT_EQ(foreign_versions(**root).value(), (std::vector<uint64_t>{1, 2, 3}));
  EXPECT_EQ(version_path(folder, 2).version, 2U);
  const auto summary = must(describe_foreign(version_path(folder, 2), 2));
  EXPECT_EQ(summary.encoding, "xor");
  EXPECT_EQ(summary.base, 1U);
  EXPECT_EQ(summary.tensors.size(), summary.num_tensors);
}

TEST_F(ForeignPathTest, DoesNotRecogniseOwnFiles) {
  EXPECT_FALSE(recognise_foreign(folder.base()).value());
  EXPECT_FALSE(recognise_foreign(folder.base().parent_path()).value());
  EXPECT_FALSE(recognise_foreign(folder.path("missing")).value());
}

TEST_F(ForeignPathTest, VerifyComparesWithACheckpoint) {
  folder.write_all(slime());
  write_checkpoint(folder.path("v2.safetensors"), folder.model(2));
  const auto same =
      must(verify_foreign(version_path(folder, 2), folder.path("v2.safetensors"), {}));
  EXPECT_TRUE(same.differences.empty());
  const auto other =
      must(verify_foreign(version_path(folder, 3), folder.path("v2.safetensors"), {}));
  EXPECT_FALSE(other.differences.empty());
}

TEST_F(ForeignPathTest, VerifyNeedsASingleVersion) {
  folder.write_all(slime());
  EXPECT_FAILS(
      verify_foreign(recognise_foreign(folder.path("source")).value().value(), folder.base(), {}),
      kInvalidArgument, "name one of them");
}

}  // namespace
}  // namespace deltawire::testing
