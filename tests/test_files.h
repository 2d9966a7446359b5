// What the tests of this folder share: literal files, a folder that goes away, status checks.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "deltawire/status.h"

namespace deltawire::testing {

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
    std::string pattern = (std::filesystem::temp_directory_path() / "deltawire-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) std::abort();
    path_ = pattern;
  }
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::permissions(path_, std::filesystem::perms::owner_all, ignored);
    std::filesystem::remove_all(path_, ignored);
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path put(std::string_view name, std::string_view content) const {
    std::ofstream(path_ / name, std::ios::binary)
        .write(content.data(), std::streamsize(content.size()));
    return path_ / name;
  }
  size_t num_files() const {
    return size_t(std::distance(std::filesystem::directory_iterator(path_), {}));
  }

 private:
  std::filesystem::path path_;
};

inline std::string read_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// Ok when `status` has this code and its message contains every one of the phrases.
template <class... Phrases>
::testing::AssertionResult is_failure(const Status& status, Code code, const Phrases&... phrases) {
  bool all = status.code() == code;
  ((all = all && status.message().find(phrases) != std::string::npos), ...);
  if (all) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "got " << status.to_string();
}

}  // namespace deltawire::testing
