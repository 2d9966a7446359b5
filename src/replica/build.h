// Builds a version from local files and hops: as a redo record, in private files, or in new files.
// Memory is bounded by a wave of tensors, whatever the size of the model.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "delta/apply_plan.h"
#include "deltawire/checkpoint.h"
#include "deltawire/delta.h"
#include "deltawire/status.h"
#include "format/schema.h"
#include "replica/journal.h"
#include "replica/journal_redo.h"
#include "replica/limits.h"
#include "replica/tensors.h"

namespace deltawire {

class Ahead;
class PatchedFiles;

struct BuildContext {
  const Target& target;
  const Checkpoint& source;
  // All tensors of the target, or some of them.
  std::span<const TensorSteps> steps;
  bool check_untouched = true;  // also hash tensors that no step changes
  ThreadPool* pool = nullptr;
  Progress progress;
  StageMemory memory = share_stage_memory(kUsualMemory);
  Ahead* ahead = nullptr;  // tensors that were decoded early; may be null
};

// Works on copies of the source's tensors and writes the differences to `redo`. `files` are the
// source's files, which the redo record will patch. `scratch` holds copies of tensors too large for
// memory.
Status build_redo(const BuildContext& build, PatchedFiles* files,
                  const std::filesystem::path& scratch, RedoWriter* redo);

// Patches the source's own files, which nobody else uses. Does not sync them.
Status build_in_place(const BuildContext& build);

// Writes to `folder` the files of `layout` that are relaid or contain a changed tensor. If the
// source has an index and any file is relaid, writes an index too. Returns the names of the written
// files.
Result<std::vector<std::string>> build_files(const BuildContext& build, const PlannedLayout& layout,
                                             const std::filesystem::path& folder);

struct NewFiles {
  std::filesystem::path folder;  // where the new files are made
  std::filesystem::path held;    // where the held files are
  FileStamps weights;            // the held files; empty if nothing is held
  bool apart = false;            // make all files of the version, not only those that change
};

// For copy-on-write, or when tensors were added, removed or reshaped. The record lists the files
// and what to do with each.
Result<JournalRecord> build_from_held(const BuildContext& build, std::span<const Delta> deltas,
                                      const NewFiles& files);

// Builds all files from a version stored whole, whose files are in `fetched`, and the deltas after
// it. Moves files out of `fetched`.
Result<JournalRecord> build_from_whole(const BuildContext& build, const Hop& whole,
                                       const std::filesystem::path& fetched, const NewFiles& files);

}  // namespace deltawire
