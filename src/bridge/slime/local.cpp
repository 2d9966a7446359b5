#include "bridge/slime/local.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/descriptor.h"
#include "base/file.h"
#include "base/folder.h"
#include "base/json.h"
#include "replica/stamp_json.h"
#include "tensor/text.h"

namespace deltawire {
namespace fs = std::filesystem;
namespace {

using Json = nlohmann::json;

constexpr std::string_view kSlimeRecordFormat = "slime-local/1";
constexpr uint64_t kMaxSlimeStateBytes = 64 << 10;
constexpr uint64_t kMaxSlimeRecordBytes = 64 << 20;  // a hundred thousand shards and more
constexpr uint64_t kMaxSlimeVersion = 999'999'999'999;

std::string slime_state_text(uint64_t version) {
  char text[64];
  std::snprintf(text, sizeof text, "{\"version\": \"%06llu\"}", (unsigned long long)version);
  return text;
}

std::vector<fs::path> sync_folders(const SlimeLocal& local) {
  std::vector<fs::path> folders = {local.own()};
  std::error_code error;
  if (fs::is_directory(local.own_of_generation_2(), error)) {
    folders.push_back(local.own_of_generation_2());
  }
  return folders;
}

bool same_file(int fd, const fs::path& path) {
  struct stat own, there;
  return ::fstat(fd, &own) == 0 && ::stat(path.c_str(), &there) == 0 &&
         own.st_dev == there.st_dev && own.st_ino == there.st_ino;
}

// The descriptor that holds the lock.
Result<int> take_slime_lock(const fs::path& file, const std::function<Status()>& check) {
  for (;;) {
    const int fd = ::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (fd < 0) return system_error(file, "cannot open", errno);
    while (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
      Status status = errno == EWOULDBLOCK || errno == EINTR
                          ? (check ? check() : Status())
                          : system_error(file, "cannot lock", errno);
      if (!status.ok()) {
        ::close(fd);
        return std::move(status).at(file.string() + ": waiting for whoever holds it");
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    if (same_file(fd, file)) return fd;
    ::close(fd);  // the folder was removed and made again meanwhile
  }
}

}  // namespace

Result<std::optional<uint64_t>> read_slime_version(const SlimeLocal& local) {
  for (const fs::path& folder : {local.own(), local.own_of_generation_2()}) {
    const fs::path file = folder / "state.json";
    std::error_code error;
    if (fs::is_symlink(file, error)) {  // what it leads to must not be told to whoever asks
      return corruption(file.string() + ": is a link");
    }
    if (!fs::exists(file, error)) continue;
    DW_ASSIGN_OR_RETURN(const std::string text, read_text_file(file, kMaxSlimeStateBytes));
    const Json state = parse_json(text);
    const auto found = state.is_object() ? state.find("version") : state.end();
    uint64_t version = 0;
    const bool known =
        state.is_object() && found != state.end() &&
        (found->is_number_unsigned()
             ? (version = found->get<uint64_t>(), true)
             : found->is_string() && parse_number(found->get_ref<const std::string&>(), &version));
    if (!known || version > kMaxSlimeVersion) {
      return corruption(file.string() + ": expected {\"version\": \"000003\"}, got " + quote(text));
    }
    return std::optional(version);
  }
  return std::optional<uint64_t>();
}

Status write_slime_version(const SlimeLocal& local, uint64_t version) {
  for (const fs::path& folder : sync_folders(local)) {
    DW_RETURN_IF_ERROR(write_text_file(folder / "state.json", slime_state_text(version)));
  }
  return {};
}

Status remove_slime_version(const SlimeLocal& local) {
  for (const fs::path& folder : sync_folders(local)) {
    const fs::path file = folder / "state.json";
    if (::unlink(file.c_str()) != 0 && errno != ENOENT) {
      return system_error(file, "cannot remove", errno);
    }
    DW_RETURN_IF_ERROR(sync_directory(folder));
  }
  return {};
}

std::string slime_record_text(const SlimeRecord& record) {
  Json files = Json::object();
  for (const auto& [name, stamp] : record.files) files[name] = stamp_json(stamp);
  const Json json = {{"format", kSlimeRecordFormat},
                     {"version", record.version},
                     {"source", record.source},
                     {"identity", record.identity},
                     {"files", std::move(files)}};
  return json_text(json, {.indent = 1, .ascii = true, .replace_bytes = true}) + "\n";
}

std::optional<SlimeRecord> parse_slime_record(std::string_view text) {
  const Json json = parse_json(text);
  if (!json.is_object() || json.value("format", Json()) != kSlimeRecordFormat) return {};
  const Json version = json.value("version", Json()), files = json.value("files", Json());
  const Json source = json.value("source", Json()), identity = json.value("identity", Json());
  if (!version.is_number_unsigned() || !files.is_object() || !source.is_string() ||
      !identity.is_string()) {
    return {};
  }
  SlimeRecord record{
      version.get<uint64_t>(), source.get<std::string>(), identity.get<std::string>(), {}};
  for (const auto& [name, stamp] : files.items()) {
    if (!read_stamp(stamp, &record.files[name])) return {};
  }
  return record;
}

std::optional<SlimeRecord> read_slime_record(const SlimeLocal& local) {
  const Result<std::string> text = read_text_file(local.record(), kMaxSlimeRecordBytes);
  return text.ok() ? parse_slime_record(*text) : std::nullopt;
}

Status write_slime_record(const SlimeLocal& local, const SlimeRecord& record) {
  return write_text_file(local.record(), slime_record_text(record));
}

Result<SlimeLock> SlimeLock::take(const SlimeLocal& local, const std::function<Status()>& check) {
  DW_RETURN_IF_ERROR(make_folder(local.own()));
  std::error_code error;
  for (const fs::path& folder : sync_folders(local)) {
    if (fs::is_symlink(folder, error)) {
      return invalid_argument(folder.string() +
                              ": is a link; what is written there must stay there");
    }
  }
  SlimeLock lock;
  for (const fs::path& folder : sync_folders(local)) {
    DW_ASSIGN_OR_RETURN(const int fd, take_slime_lock(folder / "lock", check));
    lock.descriptors_.push_back(fd);
  }
  return lock;
}

SlimeLock::~SlimeLock() {
  for (const int fd : descriptors_) ::close(fd);
}

}  // namespace deltawire
