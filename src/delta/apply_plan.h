// What a delta makes of a checkpoint, file by file, before any of it is written.
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

// Which file of a checkpoint holds which tensor when tensors come, go or change their form.
struct PlannedTensor {
  size_t index = 0;               // in the schema
  uint64_t offset = 0, size = 0;  // in the file
};

struct PlannedFile {
  const CheckpointFile* from = nullptr;  // the source's file of the same name
  bool relaid = false;                   // false: header and offsets are those of that file
  std::string header;
  uint64_t size = 0;
  std::vector<PlannedTensor> tensors;  // in the order of the data
};

struct PlannedLayout {
  std::vector<PlannedFile> files;
  std::vector<std::string> gone;  // files of the source that have no tensor left
  bool relaid = false;            // of any file
};

// Tensors stay in the file they are in; new ones go to the end of the last file. Metadata is kept.
// With `keep_empty` files without tensors stay too. Points into `source`.
Result<PlannedLayout> plan_layout(const Checkpoint& source, const Schema& schema,
                                  bool keep_empty = false);

// One tensor of the result: where its bytes come from and go to.
struct OutTensor {
  TensorSpec spec;
  const CheckpointTensor* from = nullptr;    // null: comes with the delta
  std::vector<const Delta::Entry*> entries;  // what patches or brings it
  uint64_t offset = 0, size = 0;             // in the new file
  Digest state;                              // of the result, for its state

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
  bool relaid = false;  // tensors came, went or changed their form
};

// Points into `base` and `delta`. `before` are the states of the base's tensors: those that the
// delta leaves alone have theirs already.
Result<ApplyPlan> plan_apply(const Checkpoint& base, const Delta& delta,
                             const std::vector<TensorState>& before);

// Is this checkpoint what the delta was made from?

// The digests of all tensors of a base, which are sorted by name, in their order. BaseMismatch,
// naming the tensor where that can be known, unless they are those that `delta` was made from.
// `place` is what messages call the base.
Result<std::vector<TensorState>> check_base(const std::string& place,
                                            std::span<const CheckpointTensor> tensors,
                                            const Delta& delta, ThreadPool* pool,
                                            const Progress& progress);

// Applies an entry to the bytes of its tensor. `hasher`, if not null, gets the new contents of the
// entry's box.
Status apply_entry(const DeltaEntry& entry, Bytes payload, MutableBytes tensor, Hasher* hasher,
                   ThreadPool* pool);
// The same; Corruption unless the box then has the entry's new digest.
Status apply_checked(const Delta::Entry& item, MutableBytes tensor, ThreadPool* pool);
Status check_new_digest(const Delta::Entry& item, const Digest& got);

// What an array's digest will be once changes are written into it, without writing them.

// Elements of an array and their new values; positions ascend and lie inside it.
struct ChangeSpan {
  std::span<const uint64_t> positions;
  Bytes values;
};

// Of an array, around its changes.
struct BothDigests {
  Digest before, after;
};

// sum128 of both, from the sums of `bytes`, which are read where they change.
BothDigests digests_around(Sums sums, unsigned width, Bytes bytes, const ChangeSpan& changes,
                           ThreadPool* pool);

}  // namespace deltawire
