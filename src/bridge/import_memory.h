// What an import remembers beside its work: which version of theirs the chain's head was made from,
// and which ones had no file. A run that began again in the same place has versions of the same
// numbers, and dialects without digests would let them pass; so would files that come late. Only a
// help: without it nothing else is lost.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "deltawire/status.h"

namespace deltawire {

struct ImportMemory {
  uint64_t version = 0;
  std::string fingerprint;
  std::vector<uint64_t> without_file;  // since the last whole version; ascending
};

std::optional<ImportMemory> recall_import(const std::filesystem::path& folder);
// `whole`: what is there of versions before it does not matter any more.
Status remember_import(const std::filesystem::path& folder, uint64_t version,
                       const std::string& fingerprint, bool whole);
Status remember_without_file(const std::filesystem::path& folder, uint64_t version);
// The first of the versions that had no file when they were taken; they are ascending.
std::optional<uint64_t> find_late(const std::filesystem::path& folder,
                                  std::span<const uint64_t> versions);

}  // namespace deltawire
