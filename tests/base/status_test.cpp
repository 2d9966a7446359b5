#include "deltawire/status.h"

#include "test_files.h"

namespace deltawire::testing {
namespace {

Result<std::string> failed() { return not_found("step.safetensors: is not there"); }

// Each in a process of its own, in release builds as in others.
TEST(ResultDeathTest, AValueThatIsNotThereAbortsWithTheStatus) {
  const char* const said = "failed Result was used: not found: step.safetensors: is not there";
  Result<std::string> result = failed();
  const Result<std::string> constant = failed();
  EXPECT_DEATH((void)result.value(), said);
  EXPECT_DEATH((void)constant.value(), said);
  EXPECT_DEATH((void)failed().value(), said);
  EXPECT_DEATH((void)(*result).size(), said);
  EXPECT_DEATH((void)(*constant).size(), said);
  EXPECT_DEATH((void)result->size(), said);
  EXPECT_DEATH((void)constant->size(), said);
}

TEST(ResultTest, OkWithoutAValueIsAFailure) {
  const Result<int> result = Status();
  EXPECT_FALSE(result.ok());
  EXPECT_EQ(result.status().code(), Code::kInternal);
}

TEST(ResultTest, AValueIsMovedOutOnce) {
  Result<std::string> result = std::string("value");
  ASSERT_TRUE(result.ok());
  EXPECT_TRUE(result.status().ok());
  EXPECT_EQ(result->size(), 5U);
  EXPECT_EQ(std::move(result).value(), "value");
}

}  // namespace
}  // namespace deltawire::testing
