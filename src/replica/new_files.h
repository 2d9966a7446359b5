// The weights of a version as new files: beside what is held, or instead of it.
#pragma once

#include <filesystem>
#include <span>

#include "delta/delta_reader.h"
#include "deltawire/status.h"
#include "replica/build.h"
#include "replica/journal.h"
#include "replica/local_state.h"
#include "replica/plan_pull.h"

namespace deltawire {

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
