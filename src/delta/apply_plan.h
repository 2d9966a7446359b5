// Plans the result of a delta on a checkpoint before anything is written, and applies entries.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/thread_pool.h"
#include "delta/delta_reader.h"
#include "deltawire/checkpoint.h"
#include "deltawire/delta.h"
#include "deltawire/digest.h"
#include "deltawire/status.h"
#include "format/schema.h"
#include "format/state_digest.h"
#include "tensor/safetensors.h"

namespace deltawire {

// Where tensors are in the files of a checkpoint after tensors were added, removed or reshaped.
struct PlannedTensor {
  size_t index = 0;               // in the schema
  uint64_t offset = 0, size = 0;  // in the file
};

struct PlannedFile {
  const CheckpointFile* from = nullptr;  // the source's file of the same name
  bool relaid = false;                   // false: header and offsets are those of that file
  std::string header;
  uint64_t size = 0;
  std::vector<PlannedTensor> tensors;  // in data order
};

struct PlannedLayout {
  std::vector<PlannedFile> files;
  std::vector<std::string> gone;  // files of the source without remaining tensors
  bool relaid = false;            // any file is relaid
};

// Tensors stay in their files; new ones are added to the end of the last file. Metadata is kept.
// With `keep_empty` files without tensors stay, too. The result points into `source`.
Result<PlannedLayout> plan_layout(const Checkpoint& source, const Schema& schema,
                                  bool keep_empty = false);

// A tensor of the result: the source and destination of its bytes.
struct OutTensor {
  TensorSpec spec;
  const CheckpointTensor* from = nullptr;    // null: the delta brings the tensor
  std::vector<const Delta::Entry*> entries;  // what patches or brings it
  uint64_t offset = 0, size = 0;             // in the new file
  Digest state;                              // digest of the result

  bool brought() const { return !entries.empty() && !entries[0]->entry.old_digest; }
};

struct OutFile {
  const CheckpointFile* from = nullptr;  // the base's file of the same name
  std::string header;
  std::vector<OutTensor> tensors;
  uint64_t size = 0;
};

struct ApplyPlan {
  std::vector<OutFile> files;
  bool relaid = false;  // tensors were added, removed or reshaped
};

// The result points into `base` and `delta`. `before`: the states of the base's tensors; unchanged
// tensors keep theirs.
Result<ApplyPlan> plan_apply(const Checkpoint& base, const Delta& delta,
                             const std::vector<TensorState>& before);

// Checking that a checkpoint is the base of a delta.

// Returns the digests of all tensors of the base, which are sorted by name. BaseMismatch, naming
// the tensor if possible, unless `delta` was made from these tensors. `place` names the base in
// messages.
Result<std::vector<TensorState>> check_base(const std::string& place,
                                            std::span<const CheckpointTensor> tensors,
                                            const Delta& delta, ThreadPool* pool,
                                            const Progress& progress);

// Applies an entry to the bytes of its tensor. If `hasher` is not null, it gets the new contents of
// the entry's box.
Status apply_entry(const DeltaEntry& entry, Bytes payload, MutableBytes tensor, Hasher* hasher,
                   ThreadPool* pool);
// The same, but Corruption unless the box then has the entry's new digest.
Status apply_checked(const Delta::Entry& item, MutableBytes tensor, ThreadPool* pool);
Status check_new_digest(const Delta::Entry& item, const Digest& got);

// The digest of an array after changes, computed without writing them.

// Elements and their new values. Positions are ascending and inside the array.
struct ChangeSpan {
  std::span<const uint64_t> positions;
  Bytes values;
};

// The digests of an array before and after changes.
struct BothDigests {
  Digest before, after;
};

// The sum128 digests. `sums` are those of `bytes`, which are read only where they change.
BothDigests digests_around(Sums sums, unsigned width, Bytes bytes, const ChangeSpan& changes,
                           ThreadPool* pool);

}  // namespace deltawire
