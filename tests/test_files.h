// Shared by all tests: common standard headers, literal files, a temporary folder, checks of
// statuses.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/bytes.h"
#include "deltawire/status.h"

namespace deltawire {

// Ends the test with the status if it is not Ok; else returns the value of the Result.
// (clang 14 has no std::source_location.)
inline void must(const Status& status, const char* file = __builtin_FILE(),
                 int line = __builtin_LINE()) {
  if (status.ok()) return;
  throw std::runtime_error(std::string(file) + ":" + std::to_string(line) + ": " +
                           status.to_string());
}
template <class T>
T must(Result<T> result, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  if (!result.ok()) must(result.status(), file, line);
  return std::move(result).value();
}

inline ::testing::AssertionResult contains(std::string_view text, std::string_view phrase) {
  const bool found = text.find(phrase) != std::string_view::npos;
  return (found ? ::testing::AssertionSuccess() : ::testing::AssertionFailure()) << "in " << text;
}

namespace testing {

namespace fs = std::filesystem;

inline Bytes as_bytes(std::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

inline std::string as_string(Bytes bytes) { return {bytes.begin(), bytes.end()}; }

// Header length, header, data, exactly as given.
inline std::string frame(std::string_view json, std::string_view data = "") {
  std::string file(8, '\0');
  store_le(file.data(), uint64_t(json.size()));
  return file.append(json).append(data);
}

class TempFolder {
 public:
  TempFolder() {
    std::string pattern = (fs::temp_directory_path() / "deltawire-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) std::abort();
    path_ = pattern;
  }
  ~TempFolder() {
    std::error_code ignored;
    fs::permissions(path_, fs::perms::owner_all, ignored);
    fs::remove_all(path_, ignored);
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  const fs::path& path() const { return path_; }
  fs::path put(std::string_view name, std::string_view content) const {
    std::ofstream(path_ / name, std::ios::binary)
        .write(content.data(), std::streamsize(content.size()));
    return path_ / name;
  }
  size_t num_files() const { return size_t(std::distance(fs::directory_iterator(path_), {})); }

 private:
  fs::path path_;
};

inline std::string read_file(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// Overwrites bytes of a file in place; a negative offset counts from the end.
inline void overwrite(const fs::path& path, int64_t offset, std::string_view text) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(offset, offset < 0 ? std::ios::end : std::ios::beg);
  file.write(text.data(), std::streamsize(text.size()));
}

inline void flip_bit(const fs::path& path, uint64_t offset) {
  overwrite(path, int64_t(offset), std::string(1, char(read_file(path)[offset] ^ 1)));
}

// Skips a test if DELTAWIRE_LEAVE_OUT names its label (CMakePresets.json): under a sanitizer "slow"
// tests take minutes and "long" ones seconds; "races" have intended data races.
inline bool left_out(std::string_view label) {
  const char* const labels = getenv("DELTAWIRE_LEAVE_OUT");
  return labels != nullptr && std::string_view(labels).find(label) != std::string_view::npos;
}
#define DW_LABEL(label) \
  if (::deltawire::testing::left_out(#label)) GTEST_SKIP() << "left out of this pass: " #label

// Runs body(0) ... body(n - 1) concurrently.
inline void in_threads(unsigned n, const std::function<void(unsigned)>& body) {
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < n; ++i) threads.emplace_back(body, i);
  for (std::thread& thread : threads) thread.join();
}

// Ok if `status` has this code and its message contains all phrases.
template <class... Phrases>
::testing::AssertionResult is_failure(const Status& status, Code code, const Phrases&... phrases) {
  bool all = status.code() == code;
  ((all = all && status.message().find(phrases) != std::string::npos), ...);
  if (all) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "got " << status.to_string();
}

template <class T, class... Phrases>
::testing::AssertionResult is_failure(const Result<T>& result, Code code,
                                      const Phrases&... phrases) {
  return is_failure(result.status(), code, phrases...);
}
// EXPECT_FAILS(result, kCorruption, "phrase", ...)
#define EXPECT_FAILS(result, code, ...)         \
  EXPECT_TRUE(::deltawire::testing::is_failure( \
      result, ::deltawire::Code::code __VA_OPT__(, ) __VA_ARGS__))

}  // namespace testing
}  // namespace deltawire
