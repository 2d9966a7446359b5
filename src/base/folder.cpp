#include "base/folder.h"

#include <signal.h>
#include <stdlib.h>
#include <unistd.h>
#include <xxhash.h>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>
#include <system_error>
#include <utility>

#include "base/text.h"

namespace deltawire {
namespace fs = std::filesystem;

Status make_folder(const fs::path& path) {
  std::error_code error;
  fs::create_directories(path, error);
  return error ? io_error(path.string() + ": cannot make folder: " + error.message()) : Status();
}

Status remove_tree(const fs::path& path) {
  std::error_code error;
  fs::remove_all(path, error);
  if (!error || error == std::errc::no_such_file_or_directory) return {};
  return io_error(path.string() + ": cannot remove: " + error.message());
}

Status rename_path(const fs::path& from, const fs::path& to) {
  if (std::rename(from.c_str(), to.c_str()) == 0) return {};
  return io_error(from.string() + ": cannot rename to " + to.string() + ": " +
                  std::strerror(errno));
}

bool looks_like_store(const std::filesystem::path& path) {
  const std::string& text = path.native();
  // One slash: Python's Path makes that of two.
  const size_t scheme = text.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789");
  if (scheme != 0 && scheme != text.npos && text.compare(scheme, 2, ":/") == 0) return true;
  std::error_code error;
  return std::filesystem::exists(path / "run.json", error) &&
         std::filesystem::is_directory(path / "manifests", error);
}

Result<WorkFolder> WorkFolder::make(const fs::path& inside) {
  std::error_code error;
  const fs::path parent = inside.empty() ? fs::temp_directory_path(error) : inside;
  if (error) return io_error("no folder for temporary files: " + error.message());
  DW_RETURN_IF_ERROR(make_folder(parent));
  std::string pattern = (parent / "deltawire-work-XXXXXX").string();
  if (::mkdtemp(pattern.data()) == nullptr) {
    return io_error(parent.string() + ": cannot create a temporary folder");
  }
  return WorkFolder(pattern);
}

WorkFolder::WorkFolder(WorkFolder&& other) noexcept : path_(std::exchange(other.path_, {})) {}

WorkFolder::~WorkFolder() {
  if (path_.empty()) return;
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

namespace {

constexpr std::string_view kEnding = ".tmp";
constexpr size_t kTagSize = 8;

// Identifies this boot and pid namespace, within which process ids are comparable. Empty: unknown.
std::string make_tag() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  std::error_code error;
  const fs::path space = fs::read_symlink("/proc/self/ns/pid", error);
  if (boot.empty() || error) return {};
  const std::string text = boot + space.string();
  XXH64_canonical_t hash;
  XXH64_canonicalFromHash(&hash, XXH3_64bits(text.data(), text.size()));
  return to_hex(hash.digest).substr(0, kTagSize);
}

const std::string& tag() {
  static const std::string* const kTag = new std::string(make_tag());  // threads may outlive main()
  return *kTag;
}

bool take_number(std::string_view* text, long* number) {
  const char* const end = text->data() + text->size();
  const auto [rest, error] = std::from_chars(text->data(), end, *number);
  if (error != std::errc() || (*text)[0] == '-') return false;
  text->remove_prefix(size_t(rest - text->data()));
  return true;
}

bool take(std::string_view* text, std::string_view expected) {
  if (!text->starts_with(expected)) return false;
  text->remove_prefix(expected.size());
  return true;
}

// Whether `name` is a temporary_path() of `target` whose process has ended.
bool is_stale(std::string_view name, std::string_view target) {
  long process = 0, counter = 0;
  const bool ours = take(&name, target) && take(&name, ".") && take(&name, tag()) &&
                    take(&name, "-") && take_number(&name, &process) && take(&name, "-") &&
                    take_number(&name, &counter) && name == kEnding;
  return ours && process > 0 && ::kill(pid_t(process), 0) != 0 && errno == ESRCH;
}

}  // namespace

fs::path folder_of(const fs::path& path) {
  fs::path folder = path.parent_path();
  return folder.empty() ? "." : folder;
}

fs::path temporary_path(const fs::path& target) {
  static std::atomic<unsigned> counter{0};
  const std::string where = tag().empty() ? std::string(kTagSize, '0') : tag();
  fs::path path = target;
  path += "." + where + "-" + std::to_string(::getpid()) + "-" + std::to_string(counter++) +
          std::string(kEnding);
  return path;
}

void remove_stale_temporaries(const fs::path& target) {
  if (tag().empty()) return;
  const std::string name = target.filename().string();
  std::error_code error, ignored;
  fs::directory_iterator it(folder_of(target), error);
  for (; !error && it != fs::directory_iterator(); it.increment(error)) {
    if (is_stale(it->path().filename().string(), name)) fs::remove_all(it->path(), ignored);
  }
}

}  // namespace deltawire
