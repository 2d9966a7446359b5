// Tensors before and after, in; entries of a delta and their payloads, out. Somebody may write to
// the tensors meanwhile: what is hashed and encoded is a copy of each, so that digests and payloads
// agree whatever happens.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "deltawire/delta.h"
#include "deltawire/digest.h"
#include "deltawire/store.h"
#include "format/delta_part.h"

namespace deltawire {

// One tensor, or a box of one.
struct EncodeItem {
  TensorChange change;
  bool comparable = false;           // false: the base has no such tensor; it goes whole
  std::optional<Digest> old_digest;  // of the old bytes, where that is known
  // Of items whose bytes are read by others too, or made when they are read: what the bytes are a
  // view of, from `begin` on. All who read through one of these see the same.
  std::shared_ptr<const Body> new_contents = {};
  uint64_t begin = 0;
  // A slice of a larger array, whose digest comes of its slices' sums.
  bool summed = false;
  uint64_t computed_bytes = 0;  // where there are no new bytes but those contents: how many
  bool wants_box_sums = false;  // what a box adds to its tensor, if it changed or is summed

  uint64_t size_bytes() const {
    return computed_bytes != 0 ? computed_bytes : change.new_bytes.size();
  }
};

struct EncodedItem {
  DeltaEntry entry;
  // The new bytes themselves for an item that goes whole; empty if it has `new_contents`, which are
  // that.
  std::vector<uint8_t> payload;
  Digest old_digest;                  // of comparable items, as far as it was asked for
  Sums old_sums, new_sums;            // of a summed item, as bytes from `begin` on
  std::optional<Sums> box_sums = {};  // as wanted
  bool changed = false;
};

enum class Hashing : uint8_t {
  kAll,      // old and new of every item: for those who need the states of both sides
  kChanged,  // what changed: its new bytes, and its old ones, which nobody writes to, unless known
  kChecked,  // the same, and known digests are checked: BaseMismatch when one does not hold
};

struct EncodeOptions {
  std::string codec = "auto";
  Hashing hashing = Hashing::kAll;
  uint64_t wave_bytes = UINT64_MAX;  // bytes of items at work at once, at most (or one item)
  Progress progress;
};

// InvalidArgument, naming those that are known, for a codec that is not.
Status check_codec(const std::string& codec);

// BaseMismatch unless they are equal.
Status check_old_digest(const Digest& expected, const Digest& got);

// Encodes all items on the pool's threads and hands each outcome to `take`, in order, from the
// calling thread. Without the digest of an item that did not change its entry's new digest is the
// known old one, or none.
Status encode_items(const std::vector<EncodeItem>& items, const EncodeOptions& options,
                    ThreadPool* pool,
                    const std::function<Status(size_t item, EncodedItem outcome)>& take);

// From two states, on disk or in memory, to the entries of a delta.

// What the entries share, and the counts; `delta_bytes` and `num_parts` are the writer's to say.
struct DeltaSummary {
  DeltaInfo info;
  DiffReport report;
};

// Both states are sorted by name. Entries go to `add` in that order, from the calling thread.
Result<DeltaSummary> diff_states(
    std::span<const TensorView> old_state, std::span<const TensorView> new_state,
    const DiffOptions& options, const Progress& progress, ThreadPool* pool,
    const std::function<Status(DeltaEntry entry, std::vector<uint8_t> payload)>& add);

}  // namespace deltawire
