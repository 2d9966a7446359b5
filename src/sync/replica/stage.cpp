#include "sync/replica/stage.h"

#include <algorithm>

#include "codec/codec.h"
#include "codec/guard.h"
#include "format/layout.h"
#include "sync/replica/patched_digest.h"
#include "sync/replica/scratch_copy.h"

namespace deltawire {
namespace {

// Positions take 8 bytes each while they are worked on: more of them than this take the way that
// needs no list.
constexpr uint64_t kMaxListBytes = uint64_t{128} << 20;

bool is_one_sparse_step(const StageJob& job) {
  if (job.steps.from == nullptr || job.steps.entries.size() != 1) return false;
  const DeltaEntry& entry = job.steps.entries[0]->entry;
  if (!entry.box.whole() || job.target.manifest.boxes.contains(entry.tensor)) return false;
  const uint64_t list_bytes = entry.num_changed * (sizeof(uint64_t) + layout_of(entry.dtype).width);
  return list_bytes <= std::min(kMaxListBytes, job.held.bytes.size() / 2);
}

Status stage_sparse(const StageJob& job, ThreadPool* pool,
                    const std::function<Status(RedoEntry)>& take) {
  const Delta::Entry& item = *job.steps.entries[0];
  const DeltaEntry& entry = item.entry;
  const Digest& target = job.target.manifest.digests[job.steps.index];
  const Layout layout = layout_of(entry.dtype);
  const Bytes held = job.held.bytes;
  const Result<Changes> changes = find_codec(entry.codec)->decode(layout, item.payload, held, pool);
  if (!changes.ok()) {
    // Decoded from other bytes than it was made for, a sound payload looks damaged.
    const Digest got = digest_of(entry.old_digest->kind, held);
    if (got != *entry.old_digest) return not_the_base(job.place, item, got);
    return Status(changes.status()).at(item.place);
  }
  const BothDigests both =
      digests_around(target.kind, layout.width, held, 0, {changes->positions, changes->values});
  const Digest old =
      entry.old_digest->kind == target.kind ? both.before : digest_of(entry.old_digest->kind, held);
  if (old != *entry.old_digest) return not_the_base(job.place, item, old);
  if (both.after != target) return not_the_target(item, target, both.after);
  return make_redo_of_changes(job.held, *changes, both, take);
}

Status stage_on_copy(const StageJob& job, ThreadPool* pool,
                     const std::function<Status(RedoEntry)>& take) {
  const Bytes held = job.held.bytes;
  DW_ASSIGN_OR_RETURN(const ScratchCopy copy,
                      ScratchCopy::make(job.scratch, job.steps.index, held.size()));
  if (job.steps.from != nullptr) std::copy(held.begin(), held.end(), copy.bytes().begin());
  DW_RETURN_IF_ERROR(advance_tensor(job.steps, job.target, job.place, copy.bytes(), pool));
  return make_redo_entries(job.held, copy.bytes(), pool, take);
}

}  // namespace

Status stage_tensor(const StageJob& job, ThreadPool* pool,
                    const std::function<Status(RedoEntry)>& take) {
  return guard_memory([&]() -> Status {
    return is_one_sparse_step(job) ? stage_sparse(job, pool, take) : stage_on_copy(job, pool, take);
  });
}

}  // namespace deltawire
