// Decodes the parts of a delta that are there while the others still arrive.
#pragma once

#include <filesystem>
#include <functional>
#include <set>
#include <string>

#include "base/thread_pool.h"
#include "deltawire/checkpoint.h"
#include "deltawire/delta.h"
#include "deltawire/status.h"
#include "sync/delta/delta_reader.h"
#include "sync/replica/journal_redo.h"
#include "sync/replica/tensors.h"

namespace deltawire {

// For the one delta between what is held and the target. One thread.
class EagerBuild {
 public:
  EagerBuild(const Target& target, const Checkpoint& held, std::filesystem::path scratch,
             RedoWriter* redo, ThreadPool* pool)
      : target_(target), held_(held), scratch_(std::move(scratch)), redo_(redo), pool_(pool) {}

  // `part` has been fetched and checked. Entries that patch a whole tensor, as nearly all do, stand
  // by themselves: they go to the redo record now. What is wrong with them is found now, too;
  // whether the parts fit together is the caller's to check when all are there.
  Status add(const PartFile& part, const Progress& progress);

  // Tensors that need no more work.
  const std::set<std::string, std::less<>>& done() const noexcept { return done_; }
  uint64_t done_bytes() const noexcept { return done_bytes_; }

 private:
  const Target& target_;
  const Checkpoint& held_;
  const std::filesystem::path scratch_;
  RedoWriter* const redo_;
  ThreadPool* const pool_;
  std::set<std::string, std::less<>> done_;
  uint64_t done_bytes_ = 0;
};

}  // namespace deltawire
