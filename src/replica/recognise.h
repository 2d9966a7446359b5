// Which version of a chain somebody holds who does not know it.
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

// Asks `holds` of the wanted version, then of the few before it, newest first, until one says yes.
// None: no such version. Records that are gone or damaged are passed over.
Result<std::optional<Held>> recognise_version(
    const Chain& chain, uint64_t wanted,
    const std::function<Result<bool>(const VersionRecord&)>& holds);

// A replica's folder whose state.json is damaged: what the files hold is found out by digest.

// The state as it must have been: the newest version up to `newest` whose tensors, all of them, are
// those of the checkpoint in the folder, bit for bit. None when it is none of the last few.
Result<std::optional<LocalState>> find_lost_state(const Chain& chain, const LocalLayout& layout,
                                                  bool copy_on_write, uint64_t newest,
                                                  ThreadPool* pool);

// Whether files are the version that they are about to be recorded as.

// BaseMismatch unless the checkpoint has the version's tensors, by name, dtype and shape, and
// those in `files` have its bytes: names file and tensor. Small tensors are read first.
Status check_files(const Checkpoint& checkpoint, const Manifest& manifest,
                   const std::set<std::string>& files, ThreadPool* pool);

// The stamps of `weights` in `folder`, which are the version's: as they were `left` when they were
// proven last, or read and proven now. BaseMismatch when they are anything else, or change while
// they are read. `read` says whether any had to be read.
Result<FileStamps> prove_files(const std::filesystem::path& folder,
                               const std::vector<std::string>& weights, const FileStamps& left,
                               const Manifest& manifest, ThreadPool* pool, bool* read);

}  // namespace deltawire
