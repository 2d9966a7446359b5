// Carries a journal out: the only code that changes a replica's checkpoint. Doing it again, from
// any point at which a process may have died, leads to the same files.
#pragma once

#include <optional>
#include <vector>

#include "base/thread_pool.h"
#include "delta/delta_reader.h"
#include "deltawire/checkpoint.h"
#include "deltawire/status.h"
#include "replica/journal_record.h"
#include "replica/local_file.h"
#include "replica/local_layout.h"

namespace deltawire {

// The checkpoint whose files `weights` are; other safetensors files beside them are not ours.
Result<Checkpoint> open_own_checkpoint(const std::filesystem::path& folder,
                                       const std::vector<std::string>& weights);

// kPatch: the checkpoint and the redo record, opened before, so that no time passes while files
// change.
struct OpenPatch {
  Checkpoint checkpoint;
  Delta redo;
};
// `journal` is the folder that holds the record: journal/, or journal.new/ before it is committed.
Result<OpenPatch> open_patch(const LocalLayout& layout, const std::filesystem::path& journal,
                             const JournalRecord& record);

// Files that were patched: every reader sees it, the disk does not have it yet.
class PatchedFiles {
 public:
  PatchedFiles(std::vector<std::optional<PatchedFile>> files, FileStamps stamps)
      : files_(std::move(files)), stamps_(std::move(stamps)) {}
  // As they were left, by name.
  const FileStamps& stamps() const noexcept { return stamps_; }
  // All are on disk when it returns.
  Status sync(ThreadPool* pool);

 private:
  std::vector<std::optional<PatchedFile>> files_;
  FileStamps stamps_;
};

// Writes the redo record's values into the checkpoint's files.
Result<PatchedFiles> carry_out_patch(const OpenPatch& patch, ThreadPool* pool);

// Renames new files over old ones and removes those that have gone. Where files of others were in
// the way, *set_aside says where they are now.
Status carry_out_files(const LocalLayout& layout, const JournalRecord& record,
                       std::vector<std::string>* set_aside);

// Makes the new folder appear under its version's name and points `current` to it.
Status carry_out_switch(const LocalLayout& layout, const JournalRecord& record,
                        std::vector<std::string>* set_aside);

}  // namespace deltawire
