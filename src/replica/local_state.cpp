#include "replica/local_state.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string>
#include <system_error>

#include "base/file.h"
#include "base/json.h"
#include "base/process.h"
#include "chain/chain.h"
#include "format/checkpoint_files.h"
#include "tensor/text.h"

namespace deltawire {
namespace fs = std::filesystem;

bool read_number(const nlohmann::json& json, const char* key, uint64_t* out) {
  if (!json.contains(key) || !json.at(key).is_number_unsigned()) return false;
  *out = json.at(key).get<uint64_t>();
  return true;
}

bool read_text(const nlohmann::json& json, const char* key, std::string* out) {
  if (!json.contains(key) || !json.at(key).is_string()) return false;
  *out = json.at(key).get<std::string>();
  return true;
}

namespace {

using Json = nlohmann::json;

constexpr std::string_view kStateFormat = "replica/1";
constexpr uint64_t kMaxStateBytes = 64 << 20;  // enough for a hundred thousand shards

Json optional_json(const std::optional<uint64_t>& value) {
  return value ? Json(*value) : Json(nullptr);
}

bool read_signed(const Json& json, const char* key, int64_t* out) {
  if (!json.contains(key) || !json.at(key).is_number_integer()) return false;
  *out = json.at(key).get<int64_t>();
  return true;
}

bool read_optional(const Json& json, const char* key, std::optional<uint64_t>* out) {
  if (!json.contains(key) || json.at(key).is_null()) return true;
  uint64_t value = 0;
  if (!read_number(json, key, &value)) return false;
  *out = value;
  return true;
}

bool read_stamp(const Json& json, FileStamp* stamp) {
  return json.is_object() && read_number(json, "bytes", &stamp->size_bytes) &&
         read_number(json, "inode", &stamp->inode) &&
         read_signed(json, "modified_ns", &stamp->modified_ns) &&
         read_signed(json, "changed_ns", &stamp->changed_ns);
}

bool read_serving(const Json& json, ReplicaState* out) {
  if (json.contains("engines") && !read_text(json, "engines", &out->engines)) return false;
  if (!json.contains("serving") || json.at("serving").is_null()) return true;
  return read_identity(json.at("serving"), &out->serving.emplace());
}

bool read_sides(const Json& json, std::map<std::string, HeldSide>* out) {
  if (!json.is_object()) return false;
  for (const auto& [name, value] : json.items()) {
    HeldSide& side = (*out)[name];
    if (!check_checkpoint_file_name(name).ok() || !read_stamp(value, &side.stamp) ||
        !read_text(value, "sha-256", &side.sha256)) {
      return false;
    }
  }
  return true;
}

}  // namespace

nlohmann::json stamp_json(const FileStamp& stamp) {
  return {{"bytes", stamp.size_bytes},
          {"inode", stamp.inode},
          {"modified_ns", stamp.modified_ns},
          {"changed_ns", stamp.changed_ns}};
}

bool read_stamps(const Json& json, FileStamps* out) {
  if (!json.is_object()) return false;
  for (const auto& [name, value] : json.items()) {
    if (!read_stamp(value, &(*out)[name])) return false;
  }
  return true;
}

nlohmann::json identity_json(const Identity& identity) {
  return {{"run", identity.run}, {"version", identity.version}, {"manifest", identity.manifest}};
}

bool read_identity(const nlohmann::json& json, Identity* identity) {
  return json.is_object() && read_text(json, "run", &identity->run) &&
         read_number(json, "version", &identity->version) &&
         read_text(json, "manifest", &identity->manifest);
}

std::string serialise_local_state(const LocalState& state) {
  Json weights = Json::object();
  for (const auto& [name, stamp] : state.weights) weights[name] = stamp_json(stamp);
  Json sides = Json::object();
  for (const auto& [name, side] : state.sides) {
    sides[name] = stamp_json(side.stamp);
    sides[name]["sha-256"] = side.sha256;
  }
  const ReplicaState& replica = state.replica;
  return json_text(Json{{"format", kStateFormat},
                        {"run", replica.run},
                        {"version", replica.version},
                        {"manifest", replica.manifest},
                        {"state", replica.state},
                        {"patching_to", optional_json(replica.patching_to)},
                        {"updated", replica.updated},
                        {"serving", replica.serving ? identity_json(*replica.serving) : Json()},
                        {"engines", replica.engines},
                        {"copy_on_write", state.copy_on_write},
                        {"weights", std::move(weights)},
                        {"sides", std::move(sides)}},
                   {.indent = 1}) +
         "\n";
}

Result<LocalState> parse_local_state(std::string_view text) {
  const Json json = parse_json(text);
  std::string format;
  if (!json.is_object() || !read_text(json, "format", &format)) {
    return corruption("not the state of a replica");
  }
  if (format != kStateFormat) {
    return unsupported("format " + quote(format) + "; this build reads " + quote(kStateFormat));
  }
  LocalState state;
  ReplicaState& replica = state.replica;
  if (!read_identity(json, &replica) || !read_text(json, "state", &replica.state) ||
      !read_optional(json, "patching_to", &replica.patching_to) ||
      !read_text(json, "updated", &replica.updated) || !read_serving(json, &replica) ||
      !json.contains("copy_on_write") || !json.at("copy_on_write").is_boolean() ||
      !json.contains("weights") || !read_stamps(json.at("weights"), &state.weights) ||
      !json.contains("sides") || !read_sides(json.at("sides"), &state.sides)) {
    return corruption("not the state of a replica: a field is missing or of another type");
  }
  state.copy_on_write = json.at("copy_on_write").get<bool>();
  return state;
}

Result<std::optional<LocalState>> read_local_state(const fs::path& file) {
  const Result<std::string> text = read_text_file(file, kMaxStateBytes);
  if (!text.ok() && text.status().code() == Code::kNotFound) return std::optional<LocalState>();
  if (!text.ok()) return text.status();
  Result<LocalState> state = parse_local_state(*text);
  if (!state.ok()) return std::move(state).status().at(file.string());
  return std::optional(std::move(*state));
}

Status write_local_state(const fs::path& file, const LocalState& state) {
  return write_text_file(file, serialise_local_state(state));
}

Result<ReplicaState> read_replica_state(const fs::path& local) {
  const fs::path file = local / ".deltawire" / "state.json";
  DW_ASSIGN_OR_RETURN(const std::optional<LocalState> state, read_local_state(file));
  if (!state) return not_found(local.string() + ": not a replica: there is no " + file.string());
  return state->replica;
}

namespace {

std::optional<uint64_t> version_of_folder(std::string_view name) {
  uint64_t version = 0;
  if (!is_version_folder(name) || name[0] != 'v' || !parse_number(name.substr(1), &version)) {
    return {};
  }
  return version;
}

std::string version_folder(uint64_t version) {
  char name[24];
  std::snprintf(name, sizeof name, "v%010llu", static_cast<unsigned long long>(version));
  return name;
}

}  // namespace

fs::path LocalLayout::version(uint64_t version) const { return root / version_folder(version); }

std::vector<uint64_t> version_folders(const fs::path& folder) {
  std::vector<uint64_t> versions;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    if (const auto version = version_of_folder(it->path().filename().string())) {
      versions.push_back(*version);
    }
  }
  std::sort(versions.begin(), versions.end());
  return versions;
}

namespace {

std::string read_holder(int fd) {
  char text[300];
  const ssize_t size = ::pread(fd, text, sizeof text, 0);
  std::string holder(text, size > 0 ? size_t(size) : 0);
  holder.erase(holder.find_last_not_of('\n') + 1);
  return holder.empty() ? "another process" : holder;
}

}  // namespace

Result<LocalLock> LocalLock::take(const std::filesystem::path& file) {
  LocalLock lock(::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
  if (lock.fd_ < 0) {
    return io_error(file.string() + ": cannot open: " + std::strerror(errno));
  }
  while (::flock(lock.fd_, LOCK_EX | LOCK_NB) != 0) {
    if (errno == EINTR) continue;
    if (errno != EWOULDBLOCK) {
      return io_error(file.string() + ": cannot lock: " + std::strerror(errno));
    }
    return conflict(file.parent_path().parent_path().string() + ": in use by " +
                    read_holder(lock.fd_));
  }
  const std::string holder = process_name() + "\n";
  if (::ftruncate(lock.fd_, 0) != 0 ||
      ::pwrite(lock.fd_, holder.data(), holder.size(), 0) != ssize_t(holder.size())) {
    return io_error(file.string() + ": cannot write: " + std::strerror(errno));
  }
  return lock;
}

bool LocalLock::is_at(const std::filesystem::path& file) const {
  struct stat own, there;
  return ::fstat(fd_, &own) == 0 && ::stat(file.c_str(), &there) == 0 &&
         own.st_dev == there.st_dev && own.st_ino == there.st_ino;
}

LocalLock::~LocalLock() {
  if (fd_ >= 0) ::close(fd_);
}

}  // namespace deltawire
