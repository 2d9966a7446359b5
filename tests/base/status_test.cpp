#include "deltawire/status.h"

#include <regex>

#include "base/next_step.h"
#include "test_files.h"

namespace deltawire::testing {
namespace {

Result<std::string> failed() { return not_found("step.safetensors: is not there"); }

// Each in a process of its own; in release builds, too.
TEST(ResultDeathTest, UsingAFailedResultAbortsWithItsStatus) {
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

TEST(ResultTest, OkStatusWithoutValueIsInternalError) {
  const Result<int> result = Status();
  EXPECT_FALSE(result.ok());
  EXPECT_EQ(result.status().code(), Code::kInternal);
}

TEST(ResultTest, MovesTheValueOut) {
  Result<std::string> result = std::string("value");
  ASSERT_TRUE(result.ok());
  EXPECT_TRUE(result.status().ok());
  EXPECT_EQ(result->size(), 5U);
  EXPECT_EQ(std::move(result).value(), "value");
}

// ---- Advice for each failure: one table for C++, the command line tool and Python.

TEST(NextStep, IsFoundByMessageThenByCode) {
  EXPECT_EQ(next_step(io_error("/d/x: cannot write: No space left on device")),
            "free space on that disk, then repeat");
  EXPECT_EQ(next_step(unavailable("x: no answer")), "repeat it");
  EXPECT_EQ(next_step(unsupported("x: no such kind of store; write s3://B/P")), "");
  EXPECT_EQ(next_step(Status()), "");
}

TEST(NextStep, ExistsForEveryCodeButInvalidArgument) {
  for (int code = int(Code::kUnsupported); code <= int(Code::kInternal); ++code) {
    EXPECT_NE(next_step(Status(Code(code), "x: went wrong")), "") << code;
  }
}

// Library messages are read by C++ and Python users, too: the command line tool adds its own flags.
TEST(LibraryMessages, DoNotNameCommandLineFlags) {
  const fs::path src = fs::path(DELTAWIRE_TESTS_DIR) / "../src";
  const std::regex flag(R"re("(?:[^"\\\n]|\\.)*--[a-z](?:[^"\\\n]|\\.)*")re");
  // The page is for operators, who have the command line tool.
  const std::vector<std::string> for_operators = {"serve/api/"};
  size_t num_files = 0;
  for (const auto& entry : fs::recursive_directory_iterator(src)) {
    const std::string name = entry.path().lexically_relative(src).string();
    if (!entry.is_regular_file() || !(name.ends_with(".cpp") || name.ends_with(".h"))) continue;
    if (std::any_of(for_operators.begin(), for_operators.end(),
                    [&](const std::string& folder) { return name.starts_with(folder); })) {
      continue;
    }
    ++num_files;
    std::ifstream file(entry.path());
    for (std::string line; std::getline(file, line);) {
      if (line.find("--") == line.npos || line.find("aws configure") != line.npos ||
          line.find("--format process") != line.npos) {
        continue;  // AWS's own tool has flags
      }
      std::smatch found;
      EXPECT_FALSE(std::regex_search(line, found, flag)) << name << ": " << found.str();
    }
  }
  EXPECT_GT(num_files, 300U);
}

}  // namespace
}  // namespace deltawire::testing
