// Encodes tensors before and after a change as entries of a delta. Somebody may write to the
// tensors meanwhile, so a copy of each is hashed and encoded. Digests and payloads therefore always
// agree.
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

// A tensor, or a box of one.
struct EncodeItem {
  TensorChange change;
  bool comparable = false;           // false: the base has no such tensor, so it is stored whole
  std::optional<Digest> old_digest;  // of the old bytes, if known
  // For bytes that others read too, or that are computed on reading: the body that the bytes are a
  // view of, starting at `begin`. All readers of this body see the same bytes.
  std::shared_ptr<const Body> new_contents = {};
  uint64_t begin = 0;
  // A slice of a larger array. The array's digest is computed from the sums of its slices.
  bool summed = false;
  uint64_t computed_bytes = 0;  // the size, if the new bytes exist only as `new_contents`
  bool wants_box_sums = false;  // compute what a box adds to its tensor, if it changed or is summed

  uint64_t size_bytes() const {
    return computed_bytes != 0 ? computed_bytes : change.new_bytes.size();
  }
};

struct EncodedItem {
  DeltaEntry entry;
  // For an item that is stored whole: the encoded new bytes; empty if it has `new_contents`.
  std::vector<uint8_t> payload;
  Digest old_digest;                  // of comparable items, if requested
  Sums old_sums, new_sums;            // of a summed item, for bytes from `begin` on
  std::optional<Sums> box_sums = {};  // if requested
  bool changed = false;
};

enum class Hashing : uint8_t {
  kAll,  // old and new bytes of every item, for callers that need the states of both sides
  // new bytes of changed items, and old ones unless their digest is known; nobody writes to the old
  // ones
  kChanged,
  kChecked,  // the same, and BaseMismatch if a known digest does not match
};

struct EncodeOptions {
  std::string codec = "auto";
  Hashing hashing = Hashing::kAll;
  uint64_t wave_bytes = UINT64_MAX;  // limit for items in work (or a single item)
  Progress progress;
};

// InvalidArgument, listing the known codecs, for an unknown codec.
Status check_codec(const std::string& codec);

// BaseMismatch unless the digests are equal.
Status check_old_digest(const Digest& expected, const Digest& got);

// Encodes all items with the pool's threads and passes the outcomes to `take`, in order, on the
// calling thread. Without a digest of its own, an unchanged item's new digest is the known old one,
// if any.
Status encode_items(const std::vector<EncodeItem>& items, const EncodeOptions& options,
                    ThreadPool* pool,
                    const std::function<Status(size_t item, EncodedItem outcome)>& take);

// Computes the entries of a delta from two states, on disk or in memory.

// The common data of all entries, and the counts. The writer fills in `delta_bytes` and
// `num_parts`.
struct DeltaSummary {
  DeltaInfo info;
  DiffReport report;
};

// Both states are sorted by name. Passes the entries to `add` in that order, on the calling thread.
Result<DeltaSummary> diff_states(
    std::span<const TensorView> old_state, std::span<const TensorView> new_state,
    const DiffOptions& options, const Progress& progress, ThreadPool* pool,
    const std::function<Status(DeltaEntry entry, std::vector<uint8_t> payload)>& add);

}  // namespace deltawire
