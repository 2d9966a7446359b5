// Compares the tensors of a new state with the snapshot, encodes the changes and puts the parts,
// all in one pipeline.
#pragma once

#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "delta/encode_items.h"
#include "deltawire/limits.h"
#include "deltawire/progress.h"
#include "diff/device.h"
#include "diff/hash_state.h"
#include "diff/kept_changes.h"
#include "transfer/part_stream.h"

namespace deltawire {

// The shares of a memory limit. Encoding a dense change needs several times its size, so the shares
// are small.
struct MemoryShares {
  uint64_t item_bytes;   // larger tensors are encoded in boxes
  uint64_t wave_bytes;   // of weights at work at once
  uint64_t part_bytes;   // of a part
  uint64_t queue_bytes;  // of parts on their way
};
inline constexpr uint64_t kLeastMemory = uint64_t{32} << 20;
MemoryShares share_memory(uint64_t limit, uint64_t part_bytes);
// Each thread has its own buffers, so the limit bounds the number of threads.
unsigned diff_threads(const Limits& limits);

// InvalidArgument, naming the tensor, for tensors that no version can hold: names that are not
// UTF-8, wrong sizes, boxes outside their tensor. Boxes that cover a whole tensor are removed.
Result<std::vector<PublishTensor>> check_tensors(std::span<const PublishTensor> tensors);

// What a version's manifest says of a piece; none if it does not have the tensor in this form, or
// does not know the box.
std::optional<Sums> known_sums(const ParentState& version, const TensorSpec& form, const Box& box);
std::optional<Digest> known_digest(const ParentState& version, const TensorSpec& form,
                                   const Box& box);

// The reason for a version stored whole. An entry of a delta brings a whole tensor or patches an
// existing one, so it cannot bring a box of a new tensor.
std::string box_of_new_tensor(const std::string& name);

// Bytes of the old state.
struct OldPiece {
  Bytes bytes;
  std::shared_ptr<const void> owner = {};                     // if the bytes are a copy
  std::shared_ptr<const PublishDevice::Held> on_device = {};  // set if the bytes are on a device
};

// What the new state is compared with.
class OldState {
 public:
  virtual ~OldState() = default;

  // The contents of a tensor's box. None: the state does not have the tensor in this form.
  // NotFound: the box is not held here.
  virtual Result<std::optional<OldPiece>> find(const TensorSpec& form, const Box& box) const = 0;
  // Whether contents are checked against the chain's digests when they are used.
  virtual Hashing hashing() const = 0;
};

struct StateDiff {
  std::vector<PieceRecord> pieces;  // in the order of the tensors
  bool dense = false;               // stopped: a delta would be too large
  std::string needs_full;           // stopped: why no delta can carry the changes
  uint64_t payload_bytes = 0;
};

struct DiffJob {
  std::span<const PublishTensor> tensors;  // checked by check_tensors()
  const OldState& old;
  ParentState parent;
  std::string codec;  // "auto" or a codec's name
  MemoryShares shares;
  const Progress& progress;
  uint64_t give_up_bytes = UINT64_MAX;  // limit of the payloads
  KeptChanges* keep = nullptr;          // set if the tensors may change before the parts are put
  PublishDevice* device = nullptr;      // for tensors on a device
};

// Whether the parent has the digest and, if needed, the sums of the tensor. taken_as_unchanged():
// and the caller says that it is unchanged.
bool is_known(const DiffJob& job, const PublishTensor& tensor);
bool taken_as_unchanged(const DiffJob& job, const PublishTensor& tensor);

// Adds entries for all changes to `stream`; the caller finishes it. BaseMismatch, naming the
// tensor, if the old state does not match the chain.
Result<StateDiff> diff_state(const DiffJob& job, ThreadPool* pool, PartStream* stream);

// Collects the results of a comparison on the host or on the device.
struct DiffSink {
  const DiffJob& job;
  PartStream* stream;
  StateDiff* diff;

  // Adds a change of a piece. Cancelled once the delta is too large.
  Status add(size_t piece, uint64_t begin, uint64_t size_bytes, DeltaEntry entry,
             Payload payload) const;
};
// Compares the tensors on the device.
Status diff_on_device(const DiffSink& out, ThreadPool* pool);

}  // namespace deltawire
