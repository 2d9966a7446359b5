// The redo record: what differs between the local bytes and the next version, as positions and
// values that may be written any number of times. Its parts are delta parts like any other, of
// codec gaps or raw, so whatever reads a delta reads it.
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

// Hands what differs between `before` (name, dtype, shape, bytes) and `after` to `take`, in entries
// that cover slabs of the tensor, so that no payload is much larger than `slab_bytes`: a slab is a
// range of bytes. A tensor that is not larger has one entry, or none when nothing differs.
Status make_redo_entries(const TensorView& before, Bytes after, uint64_t slab_bytes,
                         ThreadPool* pool, const std::function<Status(RedoEntry)>& take);

// The same of changes that are known already. `digests` are the whole tensor's.
Status make_redo_of_changes(const TensorView& before, const Changes& changes,
                            const BothDigests& digests, uint64_t slab_bytes, ThreadPool* pool,
                            const std::function<Status(RedoEntry)>& take);

// Where a slab's bytes lie in its tensor; Corruption when they do not lie together.
Result<ByteRange> slab_range(const DeltaEntry& entry);

// Writes entries to `folder`/redo-00000.safetensors, ..., each as soon as it is full, on a thread
// of its own: the disk works while tensors are decoded. One thread.
class RedoWriter {
 public:
  // `memory_bytes`: of entries that are on their way to the disk.
  RedoWriter(std::filesystem::path folder, DeltaInfo info, uint64_t memory_bytes);

  // Waits while too much is on its way to the disk.
  Status add(RedoEntry entry);
  // All parts are on disk; returns their names.
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
