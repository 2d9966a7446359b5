#include "shard/snapshot.h"

#include <algorithm>
#include <map>

#include "base/bytes.h"
#include "base/guard.h"
#include "format/layout.h"
#include "tensor/box.h"
#include "tensor/text.h"

namespace deltawire::shard {
namespace {

// Of the snapshot's size, unless the caller says otherwise: at 1.2 % a version that is three ago.
constexpr uint64_t kHistoryShare = 8;

Status changing(const std::string& where) {
  return io_error(where + " changed while it was sent; the next version comes whole");
}

}  // namespace

Result<Snapshot> Snapshot::create(const ShardPlan& plan, std::span<const ShardEdge* const> edges,
                                  uint64_t slice_bytes, std::optional<uint64_t> history_bytes) {
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
        Part part;
        part.begin = slice.begin;
        part.size_bytes = slice.size_bytes;
        part.box = std::move(slice.box);
        part.number = snapshot.num_parts_++;
        entry.parts.push_back(std::move(part));
        size += slice.size_bytes;
      }
      DW_ASSIGN_OR_RETURN(entry.bytes, allocate_bytes(size));
      snapshot.size_bytes_ += size;
      snapshot.entries_.push_back(std::move(entry));
    }
  }
  snapshot.history_.set_most_bytes(history_bytes.value_or(snapshot.size_bytes_ / kHistoryShare));
  return snapshot;
}

std::vector<uint64_t> Snapshot::states() const {
  if (state_ == 0) return {};
  std::vector<uint64_t> states = history_.states();
  states.insert(states.begin(), state_);
  return states;
}

Bytes Snapshot::contents(size_t edge, const Item& item) const {
  const Entry& entry = entries_[entry_of_[edge][item.move]];
  return {entry.bytes.get() + item.begin, item.size_bytes};
}

Bytes Snapshot::contents_in(uint64_t state, size_t edge, const Item& item, unsigned width,
                            std::vector<uint8_t>* room) const {
  const Bytes now = contents(edge, item);
  const Entry& entry = entries_[entry_of_[edge][item.move]];
  const size_t part = entry.parts[part_in(entry, item)].number;
  if (state == state_ || !history_.differs(part, state)) return now;
  room->assign(now.begin(), now.end());
  history_.go_back(part, state, width, *room);
  return *room;
}

size_t Snapshot::part_in(const Entry& entry, const Item& item) {
  const auto found =
      std::lower_bound(entry.parts.begin(), entry.parts.end(), item.begin,
                       [](const Part& part, uint64_t begin) { return part.begin < begin; });
  return size_t(found - entry.parts.begin());
}

void Snapshot::note(size_t edge, const Item& item, const std::optional<Digest>& digest) {
  Entry& entry = entries_[entry_of_[edge][item.move]];
  Part& part = entry.parts[part_in(entry, item)];
  // Also when one edge found it as it was and another changed: the first's receiver has the old.
  if (part.is_seen && part.noted != digest) changing_ = true;
  part.noted = digest;
  part.is_seen = true;
}

void Snapshot::forget_notes() {
  changing_ = false;
  for (Entry& entry : entries_) {
    for (Part& part : entry.parts) {
      part.is_seen = false;
      part.noted.reset();
    }
  }
}

Status Snapshot::advance_part(const ShardPlan& plan, const ReadShard& read, const Entry& entry,
                              const Part& part, History::Step* step) {
  const ShardTensor& tensor = plan.tensors[entry.tensor];
  const std::string place = "tensor " + quote(tensor.name);
  const MutableBytes room(entry.bytes.get() + part.begin, part.size_bytes);
  std::vector<uint8_t> contents(part.size_bytes);
  DW_RETURN_IF_ERROR(read(tensor, part.box, contents).at(place));
  if (part.noted && digest_of(DigestKind::kSum128, contents) != *part.noted) return changing(place);
  if (step != nullptr) step->note(part.number, layout_of(tensor.dtype).width, contents, room);
  std::copy(contents.begin(), contents.end(), room.begin());
  return {};
}

// Parts that nobody looked at are those of receivers that were not there.
Status Snapshot::advance(const ShardPlan& plan, const ReadShard& read, uint64_t state,
                         ThreadPool* pool) {
  std::vector<std::pair<const Entry*, const Part*>> changed;
  for (const Entry& entry : entries_) {
    for (const Part& part : entry.parts) {
      if (part.noted || !part.is_seen) changed.push_back({&entry, &part});
    }
  }
  std::optional<History::Step> step;
  if (state_ != 0 && has_history()) step.emplace(state_, num_parts_, history_.most_bytes());
  state_ = 0;
  Status advanced = parallel_try("snapshot", pool, changed.size(), [&](size_t i, unsigned) {
    return advance_part(plan, read, *changed[i].first, *changed[i].second, step ? &*step : nullptr);
  });
  if (advanced.ok() && changing_) advanced = changing("a tensor");
  if (!advanced.ok() || !step) history_.clear();
  DW_RETURN_IF_ERROR(advanced);
  if (step) history_.add(&*step);
  state_ = state;
  return {};
}

}  // namespace deltawire::shard
