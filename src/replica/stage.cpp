#include "replica/stage.h"

#include <algorithm>

#include "base/guard.h"
#include "codec/codec.h"
#include "delta/apply_plan.h"
#include "digest/parallel.h"
#include "format/layout.h"
#include "replica/ahead.h"

namespace deltawire {
namespace {

// An entry and the bytes of the tensor that it patches.
struct Slab {
  const Delta::Entry* item;
  ByteRange range;
};

// The steps as sparse changes of disjoint byte ranges, in ascending order. Empty if they are
// anything else.
std::vector<Slab> sparse_slabs(const StageJob& job) {
  if (job.steps.from == nullptr) return {};
  std::vector<Slab> slabs;
  uint64_t list_bytes = 0;
  for (const Delta::Entry* item : job.steps.entries) {
    const Result<ByteRange> range = slab_range(item->entry);
    if (!range.ok()) return {};
    slabs.push_back({item, *range});
    list_bytes += item->entry.num_changed * (sizeof(uint64_t) + layout_of(job.held.dtype).width);
  }
  // Positions take 8 bytes each. Larger lists use the path without a list.
  if (list_bytes > std::min<uint64_t>(job.memory.list_bytes, job.held.bytes.size() / 2)) return {};
  std::sort(slabs.begin(), slabs.end(),
            [](const Slab& a, const Slab& b) { return a.range.offset < b.range.offset; });
  for (size_t i = 1; i < slabs.size(); ++i) {
    if (slabs[i - 1].range.offset + slabs[i - 1].range.size > slabs[i].range.offset) return {};
  }
  return slabs;
}

Bytes bytes_of(const StageJob& job, const Slab& slab) {
  return job.held.bytes.subspan(slab.range.offset, slab.range.size);
}

bool is_whole(const StageJob& job, const std::vector<Slab>& slabs) {
  return slabs.size() == 1 && slabs[0].range.size == job.held.bytes.size();
}

Status check_base(const StageJob& job, const std::vector<Slab>& slabs, ThreadPool* pool) {
  return parallel_try("hashing", pool, slabs.size(), [&](size_t i, unsigned) -> Status {
    const Digest& expected = *slabs[i].item->entry.old_digest;
    const Digest got = digest_of(expected.kind, bytes_of(job, slabs[i]));
    return got == expected ? Status() : not_the_base(job.place, *slabs[i].item, got);
  });
}

Result<Changes> decode_slabs(const StageJob& job, const std::vector<Slab>& slabs,
                             ThreadPool* pool) {
  Changes all;
  uint64_t count = 0;
  // limited by sparse_slabs()
  for (const Slab& slab : slabs) count += slab.item->entry.num_changed;
  if (!is_whole(job, slabs)) all.positions.reserve(count);
  for (const Slab& slab : slabs) {
    const Layout layout = slab.item->entry.layout();
    const Codec& codec = *find_codec(slab.item->entry.codec);
    Result<Changes> own = codec.decode(layout, slab.item->payload, bytes_of(job, slab), pool);
    if (!own.ok()) return std::move(own).status().at(slab.item->place);
    if (is_whole(job, slabs)) return own;
    const uint64_t first = slab.range.offset / layout.width;
    for (const uint64_t position : own->positions) all.positions.push_back(first + position);
    all.values.insert(all.values.end(), own->values.begin(), own->values.end());
  }
  return all;
}

// Handles a single payload for the whole tensor. Base and result are proven in the pass that
// decodes it.
Status stage_whole(const StageJob& job, const Delta::Entry& item, ThreadPool* pool,
                   const std::function<Status(RedoEntry)>& take) {
  const Digest& target = job.target.manifest.digests[job.steps.index];
  const Layout layout = item.entry.layout();
  Sums sums;
  const Result<Changes> changes =
      find_codec(item.entry.codec)
          ->decode_summed(layout, item.payload, job.held.bytes, pool, &sums);
  if (!changes.ok()) {
    // A sound payload looks damaged if it is decoded from the wrong base.
    const Digest held = sum128_of(job.held.bytes, pool);
    return held == *item.entry.old_digest ? Status(changes.status()).at(item.place)
                                          : not_the_base(job.place, item, held);
  }
  const BothDigests both = digests_around(std::move(sums), layout.width, job.held.bytes,
                                          {changes->positions, changes->values}, pool);
  if (both.before != *item.entry.old_digest) return not_the_base(job.place, item, both.before);
  if (both.after != target) return not_the_target(item, target, both.after);
  return make_redo_of_changes(job.held, *changes, both, job.memory.slab_bytes, pool, take);
}

// False: the tensor was not decoded early, or was changed since.
Result<bool> take_ahead(const StageJob& job, const Delta::Entry& item, ThreadPool* pool,
                        const std::function<Status(RedoEntry)>& take) {
  if (job.ahead == nullptr) return false;
  const Digest& base = *item.entry.old_digest;
  auto decoded = job.ahead->take(job.held.name, base, job.target.manifest.digests[job.steps.index]);
  if (!decoded || sum128_of(job.held.bytes, pool) != base) return false;
  for (RedoEntry& entry : *decoded) DW_RETURN_IF_ERROR(take(std::move(entry)));
  return true;
}

Status stage_sparse(const StageJob& job, const std::vector<Slab>& slabs, ThreadPool* pool,
                    const std::function<Status(RedoEntry)>& take) {
  const Digest& target = job.target.manifest.digests[job.steps.index];
  const Result<Changes> changes = decode_slabs(job, slabs, pool);
  // A correct result also proves the base. If the result is wrong, check the base: a sound payload
  // looks damaged if it is decoded from the wrong base.
  if (!changes.ok()) {
    DW_RETURN_IF_ERROR(check_base(job, slabs, pool));
    return changes.status();
  }
  const BothDigests both =
      digests_around(sums_of(job.held.bytes, 0, pool), layout_of(job.held.dtype).width,
                     job.held.bytes, {changes->positions, changes->values}, pool);
  if (both.after != target) {
    DW_RETURN_IF_ERROR(check_base(job, slabs, pool));
    // The bytes between slabs have no digest of their own.
    return base_mismatch(job.place +
                         ": does not match the manifest: " + digest_difference(target, both.after));
  }
  return make_redo_of_changes(job.held, *changes, both, job.memory.slab_bytes, pool, take);
}

Status stage_on_copy(const StageJob& job, ThreadPool* pool,
                     const std::function<Status(RedoEntry)>& take) {
  const Bytes held = job.held.bytes;
  DW_ASSIGN_OR_RETURN(
      const ScratchCopy copy,
      ScratchCopy::make(job.scratch, job.steps.index, held.size(), job.memory.large_tensor));
  if (job.steps.from != nullptr) std::copy(held.begin(), held.end(), copy.bytes().begin());
  DW_RETURN_IF_ERROR(advance_tensor(job.steps, job.target, job.place, copy.bytes(), pool));
  return make_redo_entries(job.held, copy.bytes(), job.memory.slab_bytes, pool, take);
}

}  // namespace

bool is_one_proven_step(const StageJob& job) { return is_whole(job, sparse_slabs(job)); }

Status stage_tensor(const StageJob& job, ThreadPool* pool,
                    const std::function<Status(RedoEntry)>& take) {
  // If only digests of boxes exist, the boxes must be cut out of a copy.
  if (boxes_hashed(job.target.manifest, job.held.name) == nullptr) {
    const std::vector<Slab> slabs = sparse_slabs(job);
    if (is_whole(job, slabs)) {
      DW_ASSIGN_OR_RETURN(const bool done, take_ahead(job, *slabs[0].item, pool, take));
      return done ? Status() : stage_whole(job, *slabs[0].item, pool, take);
    }
    if (!slabs.empty()) return stage_sparse(job, slabs, pool, take);
  }
  return stage_on_copy(job, pool, take);
}

}  // namespace deltawire
