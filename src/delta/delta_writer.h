// Writes the parts of a delta to disk.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/file.h"
#include "deltawire/checkpoint.h"
#include "deltawire/status.h"
#include "format/delta_part.h"

namespace deltawire {

// Checks where a result will go, before any work is done.

enum class OutputForm { kFile, kFolder };

// The path to write to: `out` with symbolic links followed. Removes what killed processes left
// beside it. InvalidArgument if the name is empty, or if something other than a file (for a file)
// or an empty folder (for a folder) is there. NotFound or Io if its folder is missing or not
// writable.
Result<std::filesystem::path> prepare_output(const std::filesystem::path& out, OutputForm form);

// InvalidArgument if `out` is `input`, one of its files, or inside its folder.
Status refuse_input(const std::filesystem::path& out, const std::filesystem::path& input,
                    const std::vector<std::filesystem::path>& files);

// Opening a checkpoint that a user named.

// Like Checkpoint::open(), but explains what else `path` is: a delta, an index.
Result<Checkpoint> open_checkpoint(const std::filesystem::path& path);

// Folders that appear complete or not at all.

// Creates a folder beside `out`, which must be free; see prepare_output().
Result<std::filesystem::path> create_temporary_folder(const std::filesystem::path& out);
// Renames `temporary` to `out`, replacing an empty folder.
Status publish_temporary_folder(const std::filesystem::path& temporary,
                                const std::filesystem::path& out);
void remove_temporary_folder(const std::filesystem::path& temporary) noexcept;

// Whether a delta with this name is a single file rather than a folder of parts.
inline bool is_single_part(const std::filesystem::path& out) {
  return out.extension() == ".safetensors";
}

// A delta being written: one file if `out` ends in ".safetensors", else a folder of parts with an
// index. Nothing appears under `out` before finish(). If destroyed earlier, leaves nothing behind.
// Entries must be added in their final order. One thread. `poll` is called during long writes.
class DeltaWriter {
 public:
  static Result<DeltaWriter> create(const std::filesystem::path& out, uint64_t part_bytes,
                                    Poll poll = {});
  ~DeltaWriter();
  DeltaWriter(DeltaWriter&& other) noexcept;
  DeltaWriter& operator=(DeltaWriter&&) = delete;

  Status add(DeltaEntry entry, std::vector<uint8_t> payload);
  Status finish(const DeltaInfo& info);

  uint64_t bytes_written() const noexcept { return bytes_written_; }
  uint64_t num_parts() const noexcept { return num_parts_; }

 private:
  struct OpenPart;  // a part with payloads on disk and space for the header, still without digests
  DeltaWriter() = default;
  Status close_part(const DeltaInfo& info);

  std::filesystem::path out_;     // as the caller gave it
  std::filesystem::path target_;  // the same with links followed
  struct RemoveFolder {
    void operator()(std::filesystem::path* folder) const noexcept;
  };
  // The temporary folder; empty for a single file.
  std::unique_ptr<std::filesystem::path, RemoveFolder> folder_{new std::filesystem::path};
  uint64_t part_bytes_ = 0;
  Poll poll_;
  std::vector<EntryRecord> records_;
  std::vector<std::vector<uint8_t>> payloads_;
  uint64_t pending_bytes_ = 0;
  std::vector<OpenPart> open_parts_;
  uint64_t bytes_written_ = 0, num_parts_ = 0;
};

}  // namespace deltawire
