// Where the import of a source into an empty store begins.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "bridge/bridge.h"
#include "deltawire/status.h"
#include "dialect/dialect.h"

namespace deltawire {

// What an import remembers beside its work: which version of theirs the chain's head was made from,
// and which ones had no file. A run that began again in the same place has versions of the same
// numbers, and dialects without digests would let them pass; so would files that come late. Only a
// help: without it nothing else is lost.
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

struct ImportStart {
  uint64_t version = 0;  // the chain's first
  bool from_base =
      false;  // it is the base; else the source's version of that number, which is whole
};

// None: the source has nothing yet to begin with. With a base, the first version is tried on it
// before anything is committed: a run that began with a wrong one could never go on.
Result<std::optional<ImportStart>> choose_start(const Dialect& dialect, Store& source,
                                                const ImportOptions& options, ThreadPool* pool);

}  // namespace deltawire
