#include "sync/replica/local_layout.h"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <system_error>

#include "tensor/sharded_index.h"
#include "tensor/text.h"

namespace deltawire {
namespace fs = std::filesystem;
namespace {

constexpr size_t kVersionDigits = 10;

std::optional<uint64_t> version_of_folder(std::string_view name) {
  uint64_t version = 0;
  if (name.size() != kVersionDigits + 1 || name[0] != 'v' ||
      !parse_number(name.substr(1), &version)) {
    return {};
  }
  return version;
}

Status fs_error(const fs::path& path, std::string_view what, const std::error_code& error) {
  return io_error(path.string() + ": " + std::string(what) + ": " + error.message());
}

}  // namespace

fs::path LocalLayout::version(uint64_t version) const {
  char name[24];
  std::snprintf(name, sizeof name, "v%010llu", static_cast<unsigned long long>(version));
  return root / name;
}

std::vector<uint64_t> versions_side_by_side(const LocalLayout& layout) {
  std::vector<uint64_t> versions;
  std::error_code error;
  for (fs::directory_iterator it(layout.root, error), end; !error && it != end;
       it.increment(error)) {
    if (const auto version = version_of_folder(it->path().filename().string())) {
      versions.push_back(*version);
    }
  }
  std::sort(versions.begin(), versions.end());
  return versions;
}

Status check_checkpoint_file_name(std::string_view name) {
  const bool plain =
      !name.empty() && name.size() <= 255 && name[0] != '.' &&
      std::all_of(name.begin(), name.end(), [](unsigned char c) {
        return (std::isalnum(c) != 0 && c < 0x80) || c == '.' || c == '_' || c == '-';
      });
  if (plain && name != "current" && !version_of_folder(name)) return {};
  return corruption("file " + quote(name) +
                    ": a checkpoint's files have plain names of letters, digits, '.', '_' and "
                    "'-' that do not begin with a dot and are not ours");
}

bool is_weights_file(std::string_view name) {
  return name.ends_with(".safetensors") || name == kIndexFileName;
}

Status make_folder(const fs::path& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error) return fs_error(path, "cannot make the folder", error);
  return {};
}

Status remove_tree(const fs::path& path) {
  std::error_code error;
  fs::remove_all(path, error);
  if (error && error != std::errc::no_such_file_or_directory) {
    return fs_error(path, "cannot remove", error);
  }
  return {};
}

Status rename_path(const fs::path& from, const fs::path& to) {
  if (std::rename(from.c_str(), to.c_str()) == 0) return {};
  return io_error(from.string() + ": cannot rename to " + to.string() + ": " +
                  std::strerror(errno));
}

}  // namespace deltawire
