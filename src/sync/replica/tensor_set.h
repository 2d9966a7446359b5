// Tensors of a TensorReplica that live in one kind of memory: the host's (host_tensors.h) or a
// GPU's (device_tensors.h). All of a call are handed over together, so that a set can work on them
// side by side.
#pragma once

#include <span>

#include "deltawire/delta.h"
#include "deltawire/status.h"
#include "deltawire/tensor_replica.h"
#include "format/manifest.h"
#include "sync/replica/tensors.h"

namespace deltawire {

// Tensors go by their number in the schema of every version that is applied. One thread.
class TensorSet {
 public:
  virtual ~TensorSet() = default;

  virtual void add(size_t number, LiveTensor tensor) = 0;

  // BaseMismatch, naming the first that is not what the manifest says.
  virtual Status check(std::span<const size_t> which, const Manifest& manifest) = 0;

  // Makes ready what `steps` lead to. The base is proven, and what is there stays as it is:
  // BaseMismatch and Corruption as in stage.h. What `steps` point to may go when it returns.
  virtual Status stage(std::span<const TensorSteps> steps, const Target& target,
                       const Progress& progress) = 0;
  // The same for contents that are proven already and outlive commit().
  virtual Status stage_whole(size_t number, Bytes contents) = 0;
  virtual uint64_t num_staged() const = 0;  // elements that will be written

  // Writes what was made ready. After a failure the contents are undefined.
  virtual Status commit() = 0;
  virtual void drop() noexcept = 0;  // what was made ready
};

// BaseMismatch unless they are equal.
Status check_digest(const LiveTensor& tensor, const Digest& got, const Manifest& manifest,
                    size_t number);

}  // namespace deltawire
