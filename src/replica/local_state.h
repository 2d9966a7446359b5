// LOCAL/.deltawire/state.json: what the replica's folder holds, and the stamps of its files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "deltawire/replica.h"
#include "deltawire/status.h"
#include "replica/local_file.h"

namespace deltawire {

// A side file as we left it.
struct HeldSide {
  std::string sha256;  // hex
  FileStamp stamp;

  bool operator==(const HeldSide&) const = default;
};

struct LocalState {
  ReplicaState replica;
  bool copy_on_write = false;
  FileStamps weights;                     // safetensors files and their index
  std::map<std::string, HeldSide> sides;  // the version's side files, as we left them

  std::vector<std::string> weight_names() const {
    std::vector<std::string> names;
    for (const auto& [name, stamp] : weights) names.push_back(name);
    return names;
  }
};

std::string serialise_local_state(const LocalState& state);
Result<LocalState> parse_local_state(std::string_view json);

// None if the file does not exist.
Result<std::optional<LocalState>> read_local_state(const std::filesystem::path& file);
Status write_local_state(const std::filesystem::path& file, const LocalState& state);

// Used by both state.json and journals: stamps and identities.
nlohmann::json stamp_json(const FileStamp& stamp);
bool read_stamps(const nlohmann::json& json, FileStamps* stamps);

nlohmann::json identity_json(const Identity& identity);
bool read_identity(const nlohmann::json& json, Identity* identity);
// False if the member is missing or has another type.
bool read_number(const nlohmann::json& json, const char* key, uint64_t* out);
bool read_text(const nlohmann::json& json, const char* key, std::string* out);

// Where things are in a replica's folder. What files of a checkpoint may be called there is in
// format/checkpoint_files.h.
//
//   LOCAL/model*.safetensors, ...      the checkpoint, kept in place; or
//   LOCAL/v0000000123/, LOCAL/current  versions side by side (copy on write)
//   LOCAL/.deltawire/lock              held by the process that works here
//   LOCAL/.deltawire/state.json        which version this is
//   LOCAL/.deltawire/journal/          a step that must be finished; is there whole or not at all
//   LOCAL/.deltawire/journal.new/      one that is being prepared; dropped by the next process
//   LOCAL/.deltawire/work/             scratch; dropped by the next process
//   LOCAL/.deltawire/spool/            the newest deltas, for engine workers (live/spool.h)
//   LOCAL/.deltawire/workers/          who they are, and which version each serves
//   LOCAL/.deltawire/aside/N/          files of others that were in the way; theirs to remove
struct LocalLayout {
  std::filesystem::path root;

  std::filesystem::path own() const { return root / ".deltawire"; }
  std::filesystem::path lock() const { return own() / "lock"; }
  std::filesystem::path state() const { return own() / "state.json"; }
  std::filesystem::path journal() const { return own() / "journal"; }
  std::filesystem::path new_journal() const { return own() / "journal.new"; }
  std::filesystem::path work() const { return own() / "work"; }
  std::filesystem::path spool() const { return own() / "spool"; }
  std::filesystem::path aside() const { return own() / "aside"; }
  std::filesystem::path current() const { return root / "current"; }
  std::filesystem::path version(uint64_t version) const;
  // The checkpoint at `version`.
  std::filesystem::path checkpoint(bool copy_on_write, uint64_t version) const {
    return copy_on_write ? this->version(version) : root;
  }
};

// The versions that have folders in `folder`, ascending.
std::vector<uint64_t> version_folders(const std::filesystem::path& folder);

// Only one process at a time works in a replica's folder.

// Holds a flock on a file that names the holder. The destructor releases it, and the kernel does
// when the process ends.
class LocalLock {
 public:
  static LocalLock none() { return LocalLock(-1); }  // holds no lock
  // Conflict, naming the holder, if another process holds the lock.
  static Result<LocalLock> take(const std::filesystem::path& file);
  // Whether `file` is still the locked file. A folder may be removed and created again.
  bool is_at(const std::filesystem::path& file) const;
  ~LocalLock();
  LocalLock(LocalLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  LocalLock& operator=(LocalLock&&) = delete;

 private:
  explicit LocalLock(int fd) : fd_(fd) {}
  int fd_;
};

}  // namespace deltawire
