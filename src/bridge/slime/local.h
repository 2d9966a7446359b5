// A local checkpoint in slime's way: which version it says it is, who works on it, and what we keep
// beside that.
//
// Of slime generation 3 and of miles, in LOCAL/.weight_sync/:
//   state.json      {"version": "000003"}
//   lock            flock
// LOCAL/.delta_sync/ is generation 2's and has both, too; kept up to date where it is there.
// Ours, in LOCAL/.weight_sync/:
//   deltawire.json  what the version was made of, and how files were left
//   journal/        a step to be finished (journal.h)
//   journal.new/    one that is prepared; dropped by the next call
//   journal.old/    one that is done; likewise
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "deltawire/status.h"
#include "replica/file_stamp.h"

namespace deltawire {

struct SlimeLocal {
  std::filesystem::path root;

  std::filesystem::path own() const { return root / ".weight_sync"; }
  std::filesystem::path own_of_generation_2() const { return root / ".delta_sync"; }
  std::filesystem::path record() const { return own() / "deltawire.json"; }
  std::filesystem::path journal() const { return own() / "journal"; }
  std::filesystem::path new_journal() const { return own() / "journal.new"; }
  std::filesystem::path old_journal() const { return own() / "journal.old"; }
};

// The version of state.json; none: there is no such file. Corruption when it says nothing.
Result<std::optional<uint64_t>> read_slime_version(const SlimeLocal& local);
Status write_slime_version(const SlimeLocal& local, uint64_t version);
// No version is claimed while files change: their code then begins with a whole checkpoint.
Status remove_slime_version(const SlimeLocal& local);

// What a version was made of. Their state.json has a number alone, which any run may have.
struct SlimeRecord {
  uint64_t version = 0;
  std::string source;    // for messages
  std::string identity;  // of what the source had as this version (source.h); empty: unknown
  FileStamps files;      // of weights, as they were left
};
// None: there is none that this build has written.
std::optional<SlimeRecord> read_slime_record(const SlimeLocal& local);
Status write_slime_record(const SlimeLocal& local, const SlimeRecord& record);
std::string slime_record_text(const SlimeRecord& record);
std::optional<SlimeRecord> parse_slime_record(std::string_view json);

// Holds the locks of the folder. Waits for them as long as `check` is Ok.
class SlimeLock {
 public:
  static Result<SlimeLock> take(const SlimeLocal& local, const std::function<Status()>& check);
  ~SlimeLock();
  SlimeLock(SlimeLock&& other) noexcept : descriptors_(std::move(other.descriptors_)) {
    other.descriptors_.clear();
  }
  SlimeLock& operator=(SlimeLock&&) = delete;

 private:
  SlimeLock() = default;
  std::vector<int> descriptors_;
};

}  // namespace deltawire
