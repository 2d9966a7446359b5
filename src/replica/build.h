// From what is there and the hops to what a version says: as a redo record, in files that nobody
// reads yet, or in new files. Memory is bounded by a wave of tensors, whatever the model.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "deltawire/checkpoint.h"
#include "deltawire/delta.h"
#include "deltawire/status.h"
#include "format/schema.h"
#include "replica/journal_redo.h"
#include "replica/limits.h"
#include "replica/tensors.h"

namespace deltawire {

// Which file of a checkpoint holds which tensor when tensors come, go or change their form.
struct PlannedTensor {
  size_t index = 0;               // in the schema
  uint64_t offset = 0, size = 0;  // in the file
};

struct PlannedFile {
  std::string name;
  bool relaid = false;  // false: header and offsets are those of the source's file
  std::string header;   // when relaid
  uint64_t size = 0;
  std::vector<PlannedTensor> tensors;  // in the order of the data
};

struct PlannedLayout {
  std::vector<PlannedFile> files;
  std::vector<std::string> gone;  // files of the source that have no tensor left
  bool relaid = false;            // of any file
};

// Tensors stay in the file they are in; new ones go to the end of the last file. Metadata is kept.
Result<PlannedLayout> plan_layout(const Checkpoint& source, const Schema& schema);

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

}  // namespace deltawire
