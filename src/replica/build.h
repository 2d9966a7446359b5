// From what is there and the hops to what a version says: as a redo record, in files that nobody
// reads yet, or in new files. Memory is bounded by a wave of tensors, whatever the model.
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
  // All tensors of the target, or a choice of them.
  std::span<const TensorSteps> steps;
  bool check_untouched = true;  // tensors that no step changes are hashed too
  ThreadPool* pool = nullptr;
  Progress progress;
  StageMemory memory = share_stage_memory(kUsualMemory);
  Ahead* ahead = nullptr;  // what was decoded before; null: nothing was
};

// Works on copies of the source's tensors and writes what differs to `redo`. `files` are those of
// the source, which are to be patched by it. `scratch` holds copies of tensors too large for
// memory.
Status build_redo(const BuildContext& build, PatchedFiles* files,
                  const std::filesystem::path& scratch, RedoWriter* redo);

// Patches the source's own files, which are private to us. They are not synced.
Status build_in_place(const BuildContext& build);

// Writes the files of `layout` that are relaid or have a tensor that changes to `folder`, with an
// index if the source has one and anything is relaid. Returns the names of what it wrote.
Result<std::vector<std::string>> build_files(const BuildContext& build, const PlannedLayout& layout,
                                             const std::filesystem::path& folder);

struct NewFiles {
  std::filesystem::path folder;  // where they are made
  std::filesystem::path held;    // where the held ones are
  FileStamps weights;            // which; none: nothing is held
  bool apart = false;            // all files of the version are wanted, not those alone that change
};

// Copy-on-write, or tensors came, went or changed their form. The record says which files there are
// and what becomes of them.
Result<JournalRecord> build_from_held(const BuildContext& build, std::span<const Delta> deltas,
                                      const NewFiles& files);

// A version stored whole, whose files are in `fetched`, and what deltas make of it: all files are
// new. Takes files out of `fetched`.
Result<JournalRecord> build_from_whole(const BuildContext& build, const Hop& whole,
                                       const std::filesystem::path& fetched, const NewFiles& files);

}  // namespace deltawire
