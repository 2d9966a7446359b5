// journal/record.json: what a step of a replica does and where it leads. Written before the first
// byte of the checkpoint changes; a process that finds it finishes the step.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "deltawire/status.h"
#include "format/manifest.h"
#include "replica/local_state.h"

namespace deltawire {

enum class JournalKind : uint8_t {
  kPatch,   // redo/*.safetensors: absolute values, written into the checkpoint's files; files/*
            // as in kFiles
  kFiles,   // files/*: renamed over the checkpoint's files
  kSwitch,  // files/: becomes a version's folder, and `current` points to it
};

struct JournalRecord : Identity {  // of where it leads
  JournalKind kind = JournalKind::kPatch;
  // kPatch: the version whose bytes the redo record is the difference to; none: it is not known,
  // and only the files that it was made for may be patched with it.
  std::optional<Identity> from;
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

}  // namespace deltawire
