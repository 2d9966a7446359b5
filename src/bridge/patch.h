// From the tensors of one version and a foreign version to the tensors of the next.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "base/file.h"
#include "base/thread_pool.h"
#include "deltawire/checkpoint.h"
#include "deltawire/progress.h"
#include "deltawire/publisher.h"
#include "deltawire/status.h"
#include "dialect/dialect.h"

namespace deltawire {

// Space for tensors that are made or kept beside those of a checkpoint: in memory, or, for models
// larger than that, in a file that the system writes out when it needs the memory.

// Kept from one use to the next: fresh memory costs as much as what is done with it.
class Scratch {
 public:
  // `memory_bytes`: more than this goes to a file in `folder`; 0: a quarter of the machine's
  // memory.
  Scratch(std::filesystem::path folder, uint64_t memory_bytes);

  // One array for each size, undefined contents; valid until the next call.
  Result<std::vector<MutableBytes>> make(std::span<const uint64_t> sizes);
  // Io when bytes of the file were lost: its disk is full.
  Status check() const;

 private:
  Status reserve(uint64_t bytes);

  const std::filesystem::path folder_;
  const uint64_t memory_bytes_;
  std::shared_ptr<uint8_t[]> memory_;
  std::optional<MutableFile> file_;
  MutableBytes space_;
};

// Whether the version can be applied to this checkpoint, by names and forms alone. BaseMismatch
// names the tensor, both forms and the way out.
Status check_fits(const ForeignInfo& info, const Checkpoint& old);

// All tensors of the next state: those that the version names are made in `scratch`, the others are
// the old ones, and said to be unchanged. Nothing is written to `old`. What the version's digests
// say was compared, and its files were still what they had been.
Result<std::vector<PublishTensor>> patch_tensors(const ForeignVersion& version,
                                                 const Checkpoint& old, Scratch* scratch,
                                                 ThreadPool* pool, const Progress& progress);
// The tensors of a version that is whole.
Result<std::vector<PublishTensor>> whole_tensors(const ForeignVersion& version, Scratch* scratch,
                                                 ThreadPool* pool, const Progress& progress);

// Only whether it would work: tensor by tensor, nothing is kept.
Status try_patch(const ForeignVersion& version, const Checkpoint& old, ThreadPool* pool,
                 const Progress& progress);

}  // namespace deltawire
