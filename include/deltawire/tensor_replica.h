// The receiving side without files: keeps tensors in the caller's memory, the host's or a GPU's, at
// a version of a chain.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "deltawire/limits.h"
#include "deltawire/progress.h"
#include "deltawire/replica.h"
#include "deltawire/status.h"
#include "deltawire/store.h"
#include "deltawire/tensor.h"

namespace deltawire {

struct TensorReplicaOptions {
  Accept accept;
  // Whatever the model: what differs waits in memory as far as half of the limit is enough, the
  // rest in a file in `scratch`.
  Limits limits;
  CudaOptions cuda;
  // Load a version whole when the tensors hold none of the chain, or not what they should.
  bool repair = true;
  // Hash every tensor in prepare(), not only those that change; and what commit() has patched on a
  // GPU, once more, even where its digest is known from what was written.
  bool verify_all = false;
  bool check_commit = true;  // prove what commit() has patched: by one pass over it at most
  bool heartbeat = true;     // leave the version in the store, as far as that can be written
  std::string name;          // of this replica; empty: host, process, a random id
  // A folder on a disk, where parts lie while they are worked on, whole versions until commit(),
  // and all of every tensor of which only boxes are held; empty: the system's folder for temporary
  // files.
  std::filesystem::path scratch;
  Progress progress;
};

// Thread safety: one call at a time. Nothing outlives the process: there is no journal, and tensors
// whose process died in commit() died with it. Unsupported: tensors on a GPU in a build without
// CUDA, and what Replica does not support.
class TensorReplica {
 public:
  // `tensors`: all of the model, in any order, holding anything. Of a tensor there may be boxes, as
  // in tensor parallelism; one without elements says that nothing of it is held. InvalidArgument
  // when sizes do not fit dtypes, shapes and boxes, or boxes of a tensor overlap.
  //
  // Boxes are proven like tensors: by the digests of the whole tensors, of which the replica keeps
  // copies in `scratch` for it, since no codec and no digest could do with a box alone. What boxes
  // hold at first can be found out only where they are all of their tensors; else a whole version
  // is loaded.
  static Result<TensorReplica> open(std::shared_ptr<Store> store, std::vector<LiveTensor> tensors,
                                    TensorReplicaOptions options = {});
  ~TensorReplica();
  TensorReplica(TensorReplica&&) noexcept;
  TensorReplica& operator=(TensorReplica&&) noexcept;

  // What the tensors hold, proven by digest; none: not known, or no version at all.
  std::optional<uint64_t> version() const noexcept;
  Result<std::optional<uint64_t>> head();  // of the chain

  // Fetches, decodes and checks everything that leads to the goal. Tensors are read, not written;
  // whatever fails leaves them as they are. The first time, what they hold is
  // found out by digest: the wanted version, one of those before it, or none, and then a version
  // stored whole is where the path begins. InvalidArgument, naming the tensor, when the version has
  // others than were given. A part that is damaged or missing is avoided where another path leads
  // to the version. What differs waits for commit() as absolute values, or, for tensors on a GPU,
  // decoded in the GPU's memory or as payloads that are known to be sound and to fit what is there.
  Result<PullReport> prepare(const PullGoal& goal = {});
  // As that of Replica, for whole tensors in the host's memory: they are read.
  uint64_t prepare_ahead();
  // Writes what prepare() left. From its first write until it succeeds, version() is none: what a
  // failure leaves is never taken for a version, and the next prepare() starts from a whole one.
  Result<PullReport> commit();
  // Both.
  Result<PullReport> pull(const PullGoal& goal = {});

 private:
  struct Impl;
  explicit TensorReplica(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace deltawire
