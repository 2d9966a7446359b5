// Carries out a journal. No other code changes a replica's checkpoint. It can be repeated from any
// point at which a process died, with the same result.
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

// journal/record.json: what a step does and which version it leads to. It is written before the
// first byte of the checkpoint changes. A process that finds it finishes the step.
enum class JournalKind : uint8_t {
  kPatch,   // redo/*.safetensors: absolute values, written into the checkpoint's files; files/*
            // as in kFiles
  kFiles,   // files/*: renamed over the checkpoint's files
  kSwitch,  // files/: becomes a version's folder, and `current` points to it
};

struct JournalRecord : Identity {  // the version that the step leads to
  JournalKind kind = JournalKind::kPatch;
  std::string state;                // state digest, hex
  std::vector<std::string> redo;    // kPatch: the parts, in order
  std::vector<std::string> files;   // kPatch, kFiles: renamed into place
  std::vector<std::string> remove;  // likewise: files of the old version that the new one lacks
  // Side files of the old version, as they were left. Any other file that is in the way belongs to
  // somebody else and is set aside.
  std::map<std::string, FileStamp> replaces;
  Manifest target;     // the version's manifest, to prove its tensors
  uint64_t inode = 0;  // kSwitch: inode of files/, to recognise it after the move
  // The checkpoint's files after the step, for state.json.
  std::vector<std::string> weights;
  std::map<std::string, std::string> sides;  // name -> sha-256
};

inline constexpr std::string_view kJournalRecordName = "record.json";

Result<std::string> serialise_journal_record(const JournalRecord& record);
// Corruption for anything that this build would not have written. Names never lead outside the
// folder.
Result<JournalRecord> parse_journal_record(std::string_view json);
Result<JournalRecord> read_journal_record(const std::filesystem::path& journal);

// Opens the checkpoint that consists of `weights`. Other safetensors files in the folder are
// ignored.
Result<Checkpoint> open_own_checkpoint(const std::filesystem::path& folder,
                                       const std::vector<std::string>& weights);

// kPatch: the checkpoint and the redo record, opened in advance so that files change without delay.
struct OpenPatch {
  std::unique_ptr<PatchedFiles> files;
  Delta redo;
};
// From the committed journal.
Result<OpenPatch> open_patch(const LocalLayout& layout, const JournalRecord& record,
                             ThreadPool* pool);
// `journal` is the folder with the record: journal/, or journal.new/ before the commit.
Result<Delta> open_redo(const std::filesystem::path& journal, const JournalRecord& record,
                        ThreadPool* pool);

// Writes the redo record's values into the checkpoint's files. Readers see them at once; they are
// not on disk yet. Returns the stamps of the patched files.
Result<FileStamps> carry_out_patch(const OpenPatch& patch, ThreadPool* pool);

// Renames new files over old ones and removes files that the version lacks. Adds the new paths of
// other people's files that were in the way to *set_aside.
Status carry_out_files(const LocalLayout& layout, const JournalRecord& record,
                       std::vector<std::string>* set_aside);

// Moves the new folder to its version's name and points `current` to it.
Status carry_out_switch(const LocalLayout& layout, const JournalRecord& record,
                        std::vector<std::string>* set_aside);

}  // namespace deltawire
