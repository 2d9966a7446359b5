// The redo record: the differences between the local bytes and the next version, as positions and
// values that can be written repeatedly. Its parts are ordinary delta parts with codec gaps or raw,
// so any reader of deltas can read them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "delta/apply_plan.h"
#include "deltawire/status.h"
#include "deltawire/tensor.h"
#include "format/delta_part.h"
#include "transfer/upload_queue.h"

namespace deltawire {

struct RedoEntry {
  DeltaEntry entry;
  std::vector<uint8_t> payload;
};

// Passes the differences between `before` (name, dtype, shape, bytes) and `after` to `take`.
// Entries cover slabs (byte ranges) of the tensor, so that payloads are not much larger than
// `slab_bytes`. A small tensor has one entry, or none if nothing differs.
Status make_redo_entries(const TensorView& before, Bytes after, uint64_t slab_bytes,
                         ThreadPool* pool, const std::function<Status(RedoEntry)>& take);

// The same for changes that are already known. `digests` are those of the whole tensor.
Status make_redo_of_changes(const TensorView& before, const Changes& changes,
                            const BothDigests& digests, uint64_t slab_bytes, ThreadPool* pool,
                            const std::function<Status(RedoEntry)>& take);

// The byte range of a slab in its tensor. Corruption if the box is not contiguous.
Result<ByteRange> slab_range(const DeltaEntry& entry);

// Writes entries to `folder`/redo-00000.safetensors, .... Each part is written by a separate thread
// as soon as it is full, while tensors are decoded. One thread.
class RedoWriter {
 public:
  // `memory_bytes` limits the entries that wait to be written.
  RedoWriter(std::filesystem::path folder, DeltaInfo info, uint64_t memory_bytes);

  // Waits while too many bytes are waiting to be written.
  Status add(RedoEntry entry);
  // Waits until all parts are on disk and returns their names.
  Result<std::vector<std::string>> finish();

  uint64_t num_changed() const noexcept { return num_changed_; }

 private:
  Status close_part();

  const std::filesystem::path folder_;
  DeltaInfo info_;
  const uint64_t part_bytes_;
  std::vector<RedoEntry> pending_;
  uint64_t pending_bytes_ = 0, num_changed_ = 0;
  std::vector<std::string> names_;
  UploadQueue queue_;
};

}  // namespace deltawire
