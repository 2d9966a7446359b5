// From the tensors of a new state to the parts of a version: compared with the snapshot, encoded
// and put into the store, all at once.
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

// How a memory limit is shared out. What a dense change needs while it is encoded is several times
// its own size, so that little may be at work at once.
struct MemoryShares {
  uint64_t item_bytes;   // larger tensors are encoded in boxes
  uint64_t wave_bytes;   // of weights at work at once
  uint64_t part_bytes;   // of a part
  uint64_t queue_bytes;  // of parts on their way
};
inline constexpr uint64_t kLeastMemory = uint64_t{32} << 20;
MemoryShares share_memory(uint64_t limit, uint64_t part_bytes);
// Each thread has buffers of its own: no more threads than the limit allows.
unsigned diff_threads(const Limits& limits);

// InvalidArgument, naming the tensor, for what no version could hold: names that are not UTF-8,
// sizes that do not fit dtype and shape, boxes that leave their tensor. Boxes that cover all become
// none.
Result<std::vector<PublishTensor>> check_tensors(std::span<const PublishTensor> tensors);

// What a version's manifest says of a piece; none where it does not have the tensor in this form,
// or does not know that box.
std::optional<Sums> known_sums(const ParentState& version, const TensorSpec& form, const Box& box);
std::optional<Digest> known_digest(const ParentState& version, const TensorSpec& form,
                                   const Box& box);

// Why a version has to be whole. A delta's entry brings a whole tensor or patches what is there; a
// box of a tensor that is not there can do neither.
std::string box_of_new_tensor(const std::string& name);

// Bytes of the old state.
struct OldPiece {
  Bytes bytes;
  std::shared_ptr<const void> owner = {};                     // of bytes that were cut out
  std::shared_ptr<const PublishDevice::Held> on_device = {};  // set: that is where they are
};

// What the new state is compared with.
class OldState {
 public:
  virtual ~OldState() = default;

  // The contents of a tensor's box. None: the state has no such tensor, or has it with another
  // dtype or shape. NotFound: it has, but that box is not held here.
  virtual Result<std::optional<OldPiece>> find(const TensorSpec& form, const Box& box) const = 0;
  // Whether what it holds is checked against the chain's digests as it is used.
  virtual Hashing hashing() const = 0;
};

struct StateDiff {
  std::vector<PieceRecord> pieces;  // in the order of the tensors
  bool dense = false;               // given up: a delta would not pay
  std::string needs_full;           // given up: why no delta can carry this
  uint64_t payload_bytes = 0;
};

struct DiffJob {
  std::span<const PublishTensor> tensors;  // as check_tensors() gave them
  const OldState& old;
  ParentState parent;
  std::string codec;  // "auto" or a codec's name
  MemoryShares shares;
  const Progress& progress;
  uint64_t give_up_bytes = UINT64_MAX;  // of payloads: more is dense
  KeptChanges* keep = nullptr;          // set: the tensors may change before the parts are put
  PublishDevice* device = nullptr;      // of tensors that are on one
};

// By the caller's word, where the parent has a digest for it.
// Digest and, where it wants any, sums of the tensor are those of the parent unless it changes.
bool is_known(const DiffJob& job, const PublishTensor& tensor);
bool taken_as_unchanged(const DiffJob& job, const PublishTensor& tensor);

// Adds the entries of everything that changed to `stream`, which is the caller's to finish.
// BaseMismatch, naming the tensor, when the old state is not what the chain says.
Result<StateDiff> diff_state(const DiffJob& job, ThreadPool* pool, PartStream* stream);

// Where a diff on one side notes what it found: an entry for the version, and the changes.
struct DiffSink {
  const DiffJob& job;
  PartStream* stream;
  StateDiff* diff;

  // What changed of a piece. Cancelled once the diff is dense.
  Status add(size_t piece, uint64_t begin, uint64_t size_bytes, DeltaEntry entry,
             Payload payload) const;
};
// Of the tensors that are on the device.
Status diff_on_device(const DiffSink& out, ThreadPool* pool);

}  // namespace deltawire
