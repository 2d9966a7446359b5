// The folder of one version: weight_v000001/rank0000_flush000000.safetensors, ..., DONE.
//
// A rank counts its files from 0 and writes them in that order, each under a temporary name
// (`.tmp`) first. Ranks without changes write none; ranks need not follow one another. A folder
// without any file is a version that changes nothing.
//
// When is a folder complete? `DONE` is the last file, where there is one; not every writer of this
// generation makes it. Without it the only proof is that the writer went on to the next version.
// See Folder::sealed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "deltawire/status.h"
#include "deltawire/store.h"

namespace deltawire::gen1 {

inline constexpr std::string_view kDone = "DONE";

std::string folder_name(uint64_t version);  // "weight_v000001"
std::string file_name(uint64_t rank, uint64_t flush);

struct Folder {
  uint64_t version = 0;
  std::vector<ObjectInfo> files;  // by rank, then by flush
  // Set: this has a temporary name, and there is no DONE. It is being written, or its writer died.
  std::string temporary;
  // DONE, or a folder of a later version: no files will follow. Otherwise nothing tells.
  bool sealed = false;
};

// Whether a local folder is there, maybe without any file: a version that changes nothing.
bool folder_exists(Store& store, uint64_t version);

// NotFound where there is no such folder. Corruption names a file that should not be there, or one
// that is missing: flushes of a rank have no gaps.
Result<Folder> list_folder(Store& store, uint64_t version);

// All that have a folder, ascending, except those that are unfinished.
Result<std::vector<uint64_t>> list_versions(Store& store);

// Whether a folder of a version has a file with a name of this generation.
Result<bool> has_names(Store& store);

}  // namespace deltawire::gen1
