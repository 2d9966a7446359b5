// What an import remembers beside its work: which version of theirs the chain's head was made from.
// A run that began again in the same place has versions of the same numbers, and dialects without
// digests would let them pass. Only a help: without it nothing else is lost.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "deltawire/status.h"

namespace deltawire {

struct ImportMemory {
  uint64_t version = 0;
  std::string fingerprint;
};

std::optional<ImportMemory> recall_import(const std::filesystem::path& folder);
Status remember_import(const std::filesystem::path& folder, const ImportMemory& memory);

}  // namespace deltawire
