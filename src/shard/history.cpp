#include "shard/history.h"

#include <algorithm>

#include "codec/changes.h"
#include "codec/elements.h"
#include "kernels/kernels.h"

namespace deltawire::shard {

void History::Step::note(size_t part, unsigned width, Bytes now, Bytes before) {
  if (is_too_large()) return;  // nobody will read it
  ChunkChanges changes;
  collect_chunk(width, now, before, &changes);
  if (changes.positions.empty()) return;
  Undo undo{std::move(changes.positions), std::move(changes.values)};
  if (undo.size_bytes() >= before.size()) undo = {{}, {before.begin(), before.end()}};
  undo.positions.shrink_to_fit();
  undo.values.shrink_to_fit();
  bytes_ += undo.size_bytes();
  undo_[part] = std::move(undo);
}

// A version that is too large cuts off all that are before it.
void History::add(Step* step) {
  if (step->is_too_large()) {
    clear();
    return;
  }
  Kept kept{step->state_, step->bytes_, {}};
  for (size_t part = 0; part < step->undo_.size(); ++part) {
    if (step->undo_[part]) kept.undo.emplace(part, std::move(*step->undo_[part]));
  }
  bytes_ += kept.bytes;
  kept_.push_front(std::move(kept));
  while (kept_.size() > kMostVersions || bytes_ > most_bytes_) {
    bytes_ -= kept_.back().bytes;
    kept_.pop_back();
  }
}

void History::clear() noexcept {
  kept_.clear();
  bytes_ = 0;
}

std::vector<uint64_t> History::states() const {
  std::vector<uint64_t> states;
  for (const Kept& one : kept_) states.push_back(one.state);
  return states;
}

bool History::differs(size_t part, uint64_t state) const {
  for (const Kept& one : kept_) {
    if (one.undo.contains(part)) return true;
    if (one.state == state) break;
  }
  return false;
}

void History::go_back(size_t part, uint64_t state, unsigned width, MutableBytes contents) const {
  const auto scatter = kernels().scatter[width_index(width)];
  for (const Kept& one : kept_) {
    if (const auto found = one.undo.find(part); found != one.undo.end()) {
      const Undo& undo = found->second;
      if (undo.positions.empty()) {
        std::copy(undo.values.begin(), undo.values.end(), contents.begin());
      } else {
        scatter(contents.data(), undo.positions.data(), undo.values.data(), undo.positions.size());
      }
    }
    if (one.state == state) return;
  }
}

}  // namespace deltawire::shard
