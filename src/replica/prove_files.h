// Whether files are the version that they are about to be recorded as.
#pragma once

#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "deltawire/checkpoint.h"
#include "deltawire/status.h"
#include "format/manifest.h"
#include "replica/file_stamp.h"

namespace deltawire {

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
