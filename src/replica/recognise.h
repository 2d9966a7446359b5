// Finds out which version a replica holds when its state does not say so.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "chain/chain.h"
#include "chain/plan.h"
#include "deltawire/checkpoint.h"
#include "deltawire/status.h"
#include "format/manifest.h"
#include "replica/local_file.h"
#include "replica/local_state.h"

namespace deltawire {

// Calls `holds` for the wanted version and the few before it, newest first, until it returns true.
// None: no version matched. Missing and damaged records are skipped.
Result<std::optional<Held>> recognise_version(
    const Chain& chain, uint64_t wanted,
    const std::function<Result<bool>(const VersionRecord&)>& holds);

// For a folder with a damaged state.json: identifies the version by digests.

// Reconstructs the state: the newest version up to `newest` whose tensors all match the checkpoint
// in the folder. None if none of the last few versions matches.
Result<std::optional<LocalState>> find_lost_state(const Chain& chain, const LocalLayout& layout,
                                                  bool copy_on_write, uint64_t newest,
                                                  ThreadPool* pool);

// Checks files before they are recorded as a version.

// BaseMismatch, naming file and tensor, unless the checkpoint has the version's tensors (names,
// dtypes, shapes) and those in `files` have its bytes. Reads small tensors first.
Status check_files(const Checkpoint& checkpoint, const Manifest& manifest,
                   const std::set<std::string>& files, ThreadPool* pool);

// The stamps of `weights` in `folder`, which must be the version's files: either unchanged since
// they were proven (`left`), or read and proven now. BaseMismatch if they differ or change during
// the read. `read`: whether any file was read.
Result<FileStamps> prove_files(const std::filesystem::path& folder,
                               const std::vector<std::string>& weights, const FileStamps& left,
                               const Manifest& manifest, ThreadPool* pool, bool* read);

}  // namespace deltawire
