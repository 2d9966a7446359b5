// Carries a journal out: the only code that changes a replica's checkpoint. Doing it again, from
// any point at which a process may have died, leads to the same files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/thread_pool.h"
#include "delta/delta_reader.h"
#include "deltawire/checkpoint.h"
#include "deltawire/status.h"
#include "format/manifest.h"
#include "replica/local_file.h"
#include "replica/local_state.h"

namespace deltawire {

// journal/record.json: what a step of a replica does and where it leads. Written before the first
// byte of the checkpoint changes; a process that finds it finishes the step.
enum class JournalKind : uint8_t {
  kPatch,   // redo/*.safetensors: absolute values, written into the checkpoint's files; files/*
            // as in kFiles
  kFiles,   // files/*: renamed over the checkpoint's files
  kSwitch,  // files/: becomes a version's folder, and `current` points to it
};

struct JournalRecord : Identity {  // of where it leads
  JournalKind kind = JournalKind::kPatch;
  std::string state;                // state digest, hex
  std::vector<std::string> redo;    // kPatch: the parts, in order
  std::vector<std::string> files;   // kPatch, kFiles: renamed into place
  std::vector<std::string> remove;  // the same: files of the old version that the new one lacks
  // Files beside the weights that are the old version's, as they were: anything else that is in the
  // way of the above is somebody's own, and put aside.
  std::map<std::string, FileStamp> replaces;
  Manifest target;     // what the version's tensors are, to prove them by
  uint64_t inode = 0;  // kSwitch: of files/, to know it wherever it is by now
  // Of the checkpoint afterwards, for state.json.
  std::vector<std::string> weights;
  std::map<std::string, std::string> sides;  // name -> sha-256
};

inline constexpr std::string_view kJournalRecordName = "record.json";

Result<std::string> serialise_journal_record(const JournalRecord& record);
// Corruption for anything that this build would not have written: names lead nowhere else.
Result<JournalRecord> parse_journal_record(std::string_view json);
Result<JournalRecord> read_journal_record(const std::filesystem::path& journal);

// The checkpoint whose files `weights` are; other safetensors files beside them are not ours.
Result<Checkpoint> open_own_checkpoint(const std::filesystem::path& folder,
                                       const std::vector<std::string>& weights);

// kPatch: the checkpoint and the redo record, opened before, so that no time passes while files
// change.
struct OpenPatch {
  std::unique_ptr<PatchedFiles> files;
  Delta redo;
};
// Of the journal that was committed.
Result<OpenPatch> open_patch(const LocalLayout& layout, const JournalRecord& record,
                             ThreadPool* pool);
// `journal` is the folder that holds the record: journal/, or journal.new/ before it is committed.
Result<Delta> open_redo(const std::filesystem::path& journal, const JournalRecord& record,
                        ThreadPool* pool);

// Writes the redo record's values into the checkpoint's files: every reader sees it, the disk does
// not have it yet. Returns how they were left, by name.
Result<FileStamps> carry_out_patch(const OpenPatch& patch, ThreadPool* pool);

// Renames new files over old ones and removes those that have gone. Where files of others were in
// the way, *set_aside says where they are now.
Status carry_out_files(const LocalLayout& layout, const JournalRecord& record,
                       std::vector<std::string>* set_aside);

// Makes the new folder appear under its version's name and points `current` to it.
Status carry_out_switch(const LocalLayout& layout, const JournalRecord& record,
                        std::vector<std::string>* set_aside);

}  // namespace deltawire
