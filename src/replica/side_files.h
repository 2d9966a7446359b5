// The files beside a replica's weights: what must happen to them so that they are a version's, all
// of them and no others.
//
// Ours is what a version brought and is as it was left. A file of another origin, or one that was
// edited, is never destroyed: where a version needs its name, it is put aside.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "deltawire/status.h"
#include "format/manifest.h"
#include "replica/journal.h"
#include "replica/local_state.h"

namespace deltawire {

struct SidePlan {
  std::vector<SideFile> fetch;            // from the store
  std::map<std::string, HeldSide> keep;   // there as the version has them
  std::vector<std::string> remove;        // of the version that is held, not of the new one
  std::map<std::string, FileStamp> ours;  // by name, all that are
  std::string defect;                     // the first that is not as the version has it, in words

  bool all_there() const { return fetch.empty() && remove.empty(); }
};

// `folder` is where the files of `held` are; it may be missing. With `verify` nothing is taken for
// unchanged because it looks so.
Result<SidePlan> plan_side_files(const std::filesystem::path& folder,
                                 const std::map<std::string, HeldSide>& held,
                                 const std::vector<SideFile>& wanted, bool verify);

// Moves what is in `folder` under this name to LOCAL/.deltawire/aside/N/, unless it is `ours`. Says
// where in *set_aside.
Status put_aside_unless(const LocalLayout& layout, const std::filesystem::path& folder,
                        const std::string& name, const std::map<std::string, FileStamp>& ours,
                        std::vector<std::string>* set_aside);

// The version's files in `folder` after `record` was carried out, as they are now. Those that are
// not what they should be are left out: the next pull sees to them. `verify`: reads what another
// process may have put there.
Result<std::map<std::string, HeldSide>> held_side_files(const std::filesystem::path& folder,
                                                        const JournalRecord& record, bool verify);

// Those of `files` that are in `folder`, by their contents.
Result<std::map<std::string, HeldSide>> find_side_files(const std::filesystem::path& folder,
                                                        const std::vector<SideFile>& files);

}  // namespace deltawire
