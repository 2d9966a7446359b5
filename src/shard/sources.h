// Who holds what of one tensor, and who can give a box of it.
#pragma once

#include <vector>

#include "shard/shard.h"

namespace deltawire {

// A box, with its dimensions, and the ranks that hold just that, ascending.
struct HeldBox {
  Box box;
  std::vector<unsigned> ranks;
};

// Goes through a layout by tensor, in ascending order.
class RankCursors {
 public:
  explicit RankCursors(const ShardLayout& layout);
  // Different boxes of a tensor, in the order of their offsets.
  std::vector<HeldBox> boxes_of(uint32_t tensor, const Shape& shape);

 private:
  const ShardLayout& layout_;
  std::vector<size_t> next_;  // by rank: the first piece that was not yet asked for
};

// The boxes that trainer ranks hold of a tensor. They may overlap.
class SourceBoxes {
 public:
  SourceBoxes(std::vector<HeldBox> boxes, const Shape& shape);

  const std::vector<HeldBox>& boxes() const noexcept { return boxes_; }

  struct Part {
    Box box;
    const std::vector<unsigned>* holders;  // of the source's
  };
  struct Cover {
    std::vector<Part> parts;  // each element once
    std::vector<Box> gaps;    // that nobody has
  };
  Cover cover(const Box& wanted) const;

 private:
  std::vector<HeldBox> boxes_;  // by offset in `along_`
  size_t along_ = 0;            // the dimension in which boxes are thinnest
  uint64_t thickest_ = 0;       // the largest extent there
};

}  // namespace deltawire
