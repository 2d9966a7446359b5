// The files beside a replica's weights: what must happen so that they are exactly the version's.
//
// A file is ours if a version brought it and nobody changed it. Other files are never destroyed: if
// a version needs the name, they are set aside.
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
  std::map<std::string, HeldSide> keep;   // already as the version has them
  std::vector<std::string> remove;        // in the held version, but not in the new one
  std::map<std::string, FileStamp> ours;  // stamps of our files, by name
  std::string defect;  // the first file that differs from the version, for messages

  bool all_there() const { return fetch.empty() && remove.empty(); }
};

// `folder` contains the files of `held` and may be missing. With `verify` all files are read, even
// if their stamps match.
Result<SidePlan> plan_side_files(const std::filesystem::path& folder,
                                 const std::map<std::string, HeldSide>& held,
                                 const std::vector<SideFile>& wanted, bool verify);

// Moves the file of this name from `folder` to LOCAL/.deltawire/aside/N/, unless it is in `ours`.
// Adds the new path to *set_aside.
Status put_aside_unless(const LocalLayout& layout, const std::filesystem::path& folder,
                        const std::string& name, const std::map<std::string, FileStamp>& ours,
                        std::vector<std::string>* set_aside);

// The version's files in `folder` after `record` was carried out. Files that differ from the
// version are left out; the next pull repairs them. `verify`: read files that another process may
// have placed there.
Result<std::map<std::string, HeldSide>> held_side_files(const std::filesystem::path& folder,
                                                        const JournalRecord& record, bool verify);

// The files of `files` that exist in `folder` with the right contents.
Result<std::map<std::string, HeldSide>> find_side_files(const std::filesystem::path& folder,
                                                        const std::vector<SideFile>& files);

}  // namespace deltawire
