#include "shard/sources.h"

#include <algorithm>
#include <tuple>

#include "shard/boxes.h"

namespace deltawire {

RankCursors::RankCursors(const ShardLayout& layout) : layout_(layout), next_(layout.ranks.size()) {}

std::vector<HeldBox> RankCursors::boxes_of(uint32_t tensor, const Shape& shape) {
  std::vector<HeldBox> boxes;
  for (unsigned rank = 0; rank < next_.size(); ++rank) {
    const std::vector<ShardPiece>& pieces = layout_.ranks[rank];
    size_t& at = next_[rank];
    while (at < pieces.size() && pieces[at].tensor < tensor) ++at;
    for (; at < pieces.size() && pieces[at].tensor == tensor; ++at) {
      boxes.push_back({spelled_out(pieces[at].box, shape), {rank}});
    }
  }
  const auto key = [](const HeldBox& held) {
    return std::tie(held.box.offset, held.box.extent, held.ranks);
  };
  std::sort(boxes.begin(), boxes.end(),
            [&](const HeldBox& a, const HeldBox& b) { return key(a) < key(b); });
  std::vector<HeldBox> different;
  for (HeldBox& held : boxes) {
    if (!different.empty() && different.back().box == held.box) {
      different.back().ranks.push_back(held.ranks[0]);
    } else {
      different.push_back(std::move(held));
    }
  }
  return different;
}

SourceBoxes::SourceBoxes(std::vector<HeldBox> boxes, const Shape& shape)
    : boxes_(std::move(boxes)) {
  double thinnest = 2;
  for (size_t d = 0; d < shape.size(); ++d) {
    uint64_t most = 0;
    for (const HeldBox& held : boxes_) most = std::max(most, held.box.extent[d]);
    const double share = double(most) / double(std::max<uint64_t>(shape[d], 1));
    if (share >= thinnest) continue;
    thinnest = share;
    along_ = d;
    thickest_ = most;
  }
  if (shape.empty()) return;
  std::stable_sort(boxes_.begin(), boxes_.end(), [&](const HeldBox& a, const HeldBox& b) {
    return a.box.offset[along_] < b.box.offset[along_];
  });
}

SourceBoxes::Cover SourceBoxes::cover(const Box& wanted) const {
  Cover cover;
  std::vector<Box> left = {wanted}, still;
  auto at = boxes_.begin(), end = boxes_.end();
  if (!wanted.offset.empty()) {
    const uint64_t first = wanted.offset[along_];
    const uint64_t from = first - std::min(first, thickest_);
    const auto before = [&](const HeldBox& held, uint64_t offset) {
      return held.box.offset[along_] < offset;
    };
    at = std::lower_bound(at, end, from, before);
    end = std::lower_bound(at, end, first + wanted.extent[along_], before);
  }
  for (; at != end && !left.empty(); ++at) {
    still.clear();
    for (const Box& box : left) {
      Box both = intersection(box, at->box);
      if (num_elements_of(both) == 0) {
        still.push_back(box);
        continue;
      }
      add_rest(box, both, &still);
      cover.parts.push_back({std::move(both), &at->ranks});
    }
    left.swap(still);
  }
  cover.gaps = std::move(left);
  return cover;
}

}  // namespace deltawire
