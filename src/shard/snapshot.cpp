#include "shard/snapshot.h"

#include <algorithm>
#include <map>

#include "base/allocate.h"
#include "base/guard.h"
#include "tensor/split_rows.h"
#include "tensor/text.h"

namespace deltawire::shard {

Result<Snapshot> Snapshot::create(const ShardPlan& plan, std::span<const ShardEdge* const> edges,
                                  uint64_t slice_bytes) {
  Snapshot snapshot;
  std::map<std::tuple<uint32_t, Shape, Shape>, uint32_t> known;
  for (const ShardEdge* const edge : edges) {
    std::vector<uint32_t>& own = snapshot.entry_of_.emplace_back();
    for (const ShardMove& move : edge->moves) {
      const auto [at, is_new] = known.try_emplace({move.tensor, move.box.offset, move.box.extent},
                                                  uint32_t(snapshot.entries_.size()));
      own.push_back(at->second);
      if (!is_new) continue;
      const ShardTensor& tensor = plan.tensors[move.tensor];
      Entry entry;
      entry.tensor = move.tensor;
      uint64_t size = 0;
      for (Slice& slice : split_rows(move.box, tensor.dtype, tensor.shape, slice_bytes)) {
        entry.parts.push_back({slice.begin, slice.size_bytes, std::move(slice.box), {}});
        size += slice.size_bytes;
      }
      DW_ASSIGN_OR_RETURN(entry.bytes, allocate_bytes(size));
      snapshot.size_bytes_ += size;
      snapshot.entries_.push_back(std::move(entry));
    }
  }
  return snapshot;
}

Bytes Snapshot::contents(size_t edge, const Item& item) const {
  const Entry& entry = entries_[entry_of_[edge][item.move]];
  return {entry.bytes.get() + item.begin, item.size_bytes};
}

Snapshot::Part& Snapshot::part_of(size_t edge, const Item& item) {
  std::vector<Part>& parts = entries_[entry_of_[edge][item.move]].parts;
  return *std::lower_bound(parts.begin(), parts.end(), item.begin,
                           [](const Part& part, uint64_t begin) { return part.begin < begin; });
}

void Snapshot::note(size_t edge, const Item& item, const std::optional<Digest>& digest) {
  std::optional<Digest>& noted = part_of(edge, item).noted;
  if (digest && noted && *noted != *digest) unsteady_ = true;
  if (digest) noted = digest;
}

void Snapshot::forget_notes() {
  unsteady_ = false;
  for (Entry& entry : entries_) {
    for (Part& part : entry.parts) part.noted.reset();
  }
}

Status Snapshot::advance(const ShardPlan& plan, const ReadShard& read, uint64_t state,
                         ThreadPool* pool) {
  state_ = 0;
  std::vector<std::pair<const Entry*, const Part*>> changed;
  for (const Entry& entry : entries_) {
    for (const Part& part : entry.parts) {
      if (part.noted) changed.push_back({&entry, &part});
    }
  }
  const auto unsteady = [](const std::string& where) {
    return io_error(where + " changed while it was sent; the next version comes whole");
  };
  DW_RETURN_IF_ERROR(
      parallel_try("snapshot", pool, changed.size(), [&](size_t i, unsigned) -> Status {
        const auto& [entry, part] = changed[i];
        const ShardTensor& tensor = plan.tensors[entry->tensor];
        const std::string place = "tensor " + quote(tensor.name);
        const MutableBytes room(entry->bytes.get() + part->begin, part->size_bytes);
        DW_RETURN_IF_ERROR(read(tensor, part->box, room).at(place));
        return digest_of(DigestKind::kSum128, room) == *part->noted ? Status() : unsteady(place);
      }));
  if (unsteady_) return unsteady("a tensor");
  state_ = state;
  return {};
}

}  // namespace deltawire::shard
