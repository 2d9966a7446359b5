// Inputs of diff, apply and verify that another process writes to, or cuts short, meanwhile: an
// error that names the file, and no output.
#include <gtest/gtest.h>

#include "checkpoints.h"
#include "deltawire/delta.h"

namespace deltawire::testing {
namespace {

namespace fs = std::filesystem;

enum class Meddling { kNone, kWrite, kCut };

class ChangingInputsTest : public ::testing::TestWithParam<Meddling> {
 protected:
  TempFolder folder;
  const fs::path before = folder.path() / "before.safetensors";
  const fs::path after = folder.path() / "after.safetensors";
  const fs::path delta = folder.path() / "delta.safetensors";
  const fs::path out = folder.path() / "out.safetensors";

  void SetUp() override {
    std::vector<TestTensor> tensors = {make_tensor("a", DType::kBF16, {300, 512}, 1),
                                       make_tensor("b", DType::kBF16, {300, 512}, 2)};
    write_checkpoint(before, tensors);
    for (TestTensor& tensor : tensors) change(&tensor, 0.1, 3);
    tensors.push_back(make_tensor("new", DType::kBF16, {64, 64}, 4));
    write_checkpoint(after, tensors);
  }
  // In the first wave's progress: everything is open, and not everything is done.
  Progress meddle(const fs::path& path) {
    return [path, done = false](uint64_t, uint64_t) mutable {
      if (std::exchange(done, true) || GetParam() == Meddling::kNone) return true;
      if (GetParam() == Meddling::kCut) {
        fs::resize_file(path, 500);
      } else {
        std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
        file.seekp(-10, std::ios::end);
        file.write("meddlesome", 10);
      }
      return true;
    };
  }
  ::testing::AssertionResult refused(const Status& status, const fs::path& path) {
    if (GetParam() == Meddling::kNone) {
      return status.ok() ? ::testing::AssertionSuccess()
                         : ::testing::AssertionFailure() << status.to_string();
    }
    return is_failure(status, Code::kIo, path.string(), "changed while it was read");
  }
};

TEST_P(ChangingInputsTest, Diff) {
  for (const fs::path& path : {before, after}) {
    SetUp();
    DiffOptions options;
    options.threads = 1;
    options.progress = meddle(path);
    EXPECT_TRUE(refused(diff_checkpoints(before, after, delta, options).status(), path));
    EXPECT_EQ(fs::exists(delta), GetParam() == Meddling::kNone);
  }
}

TEST_P(ChangingInputsTest, Apply) {
  for (const fs::path& path : {before, delta}) {
    SetUp();
    ASSERT_TRUE(diff_checkpoints(before, after, delta, {}).ok());
    ApplyOptions options;
    options.threads = 1;
    options.progress = meddle(path);
    EXPECT_TRUE(refused(apply_delta(delta, before, out, options).status(), path));
    EXPECT_EQ(fs::exists(out), GetParam() == Meddling::kNone);
  }
}

TEST_P(ChangingInputsTest, Verify) {
  for (const fs::path& path : {before, after}) {
    SetUp();
    ApplyOptions options;
    options.threads = 1;
    options.progress = meddle(path);
    EXPECT_TRUE(refused(verify_checkpoints(before, after, options).status(), path));
  }
}

INSTANTIATE_TEST_SUITE_P(Ways, ChangingInputsTest,
                         ::testing::Values(Meddling::kNone, Meddling::kWrite, Meddling::kCut));

}  // namespace
}  // namespace deltawire::testing
