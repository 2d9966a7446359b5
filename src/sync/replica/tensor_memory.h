// Where one tensor of a TensorReplica lives. Host memory is one kind (host_tensor.h); a device's
// memory can be another: it needs to hash what it holds, decode payloads beside it, and write.
#pragma once

#include <filesystem>
#include <vector>

#include "base/thread_pool.h"
#include "deltawire/checkpoint.h"
#include "deltawire/status.h"
#include "format/manifest.h"
#include "sync/replica/tensors.h"

namespace deltawire {

// Different tensors may be used by different threads at once.
class TensorMemory {
 public:
  virtual ~TensorMemory() = default;

  // Of what is there now, as a manifest has it: over `boxes` where ranks published the tensor in
  // boxes, else null.
  virtual Result<Digest> digest(DigestKind kind, const std::vector<BoxDigest>* boxes) = 0;

  // Makes ready what `steps` lead to. Base and result are proven, and what is there stays as it is:
  // BaseMismatch, naming `place`, and Corruption as in stage.h.
  virtual Status stage(const TensorSteps& steps, const Target& target, const std::string& place,
                       ThreadPool* pool) = 0;
  // The same for contents that are proven already and outlive commit().
  virtual Status stage_whole(Bytes contents) = 0;
  virtual uint64_t num_staged() const = 0;  // elements that will be written

  // Writes what was made ready. After a failure the contents are undefined.
  virtual Status commit(ThreadPool* pool) = 0;
  virtual void drop() noexcept = 0;  // what was made ready
};

}  // namespace deltawire
