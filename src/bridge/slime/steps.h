// The new contents of a checkpoint: deltas of a foreign source on top of what it holds, tensor by
// tensor, several versions at once. What is held is only read.
#pragma once

#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/thread_pool.h"
#include "bridge/slime/source.h"
#include "deltawire/checkpoint.h"
#include "deltawire/status.h"

namespace deltawire {

// A tensor that some of the versions change.
struct TouchedTensor {
  size_t tensor = 0;                               // index into Checkpoint::tensors()
  std::vector<std::pair<size_t, size_t>> changes;  // (version in the list, tensor in it), in order
};
// Sorted by tensor. BaseMismatch for a tensor that the checkpoint does not have, unless the same
// version says by its digest that it is another one that it has: a tied head. Those are counted.
Result<std::vector<TouchedTensor>> touched_tensors(const Checkpoint& held,
                                                   std::span<const SlimeVersion> versions,
                                                   size_t* num_tied);

struct SlimeWork {
  ThreadPool* pool = nullptr;
  std::function<Status()> check = {};  // between tensors: an error ends the work
  // Of tensors that are decoded at one time; one that is larger stands alone.
  uint64_t chunk_bytes = uint64_t{512} << 20;
};

// Proves that tensors of `held` are what a version left, by its digests. BaseMismatch names the
// first one that is not.
Status prove_slime_version(const Checkpoint& held, const SlimeVersion& version,
                           const SlimeWork& work);

// Writes to `folder`, in parts, what differs between `held` and the last of the versions; returns
// their names.
Result<std::vector<std::string>> write_slime_redo(const Checkpoint& held,
                                                  std::span<const SlimeVersion> versions,
                                                  std::span<const TouchedTensor> touched,
                                                  const std::filesystem::path& folder,
                                                  const SlimeWork& work);

// Writes to `folder` the weights of the checkpoint in `from`, with the versions on top, and, if
// `with_sides`, copies of the files beside them; returns their names.
Result<std::vector<std::string>> write_slime_files(const std::filesystem::path& from,
                                                   std::span<const SlimeVersion> versions,
                                                   bool with_sides,
                                                   const std::filesystem::path& folder,
                                                   const SlimeWork& work);

}  // namespace deltawire
