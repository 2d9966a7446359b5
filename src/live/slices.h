// Held tensors cut into slices that are decoded one by one, and the memory of a slice as rows.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "live/stage.h"

namespace deltawire {

// What a delta says of a held tensor or a box of it.
struct StageStep {
  size_t delta;
  const Delta::Entry* item;
};

// Of a payload's tiles; none: it has no tiles.
struct TileExtent {
  uint64_t rows, columns;
};
std::optional<TileExtent> tile_of(const Delta::Entry& item);

// Live memory, in elements as codecs see them. `stride` is from one row to the next.
struct LiveRows {
  uint8_t* data;
  uint64_t rows, columns, stride;

  uint64_t size() const { return rows * columns; }
};

// Some rows of what is held of a tensor, or all. Its payloads are decoded without the other rows.
struct StageSlice {
  const HeldBoxes* held;
  std::span<const StageStep> steps;  // in order
  std::vector<LocalBox> boxes;
  uint64_t size_bytes = 0;

  // The boxes one after the other, from `data` on.
  std::vector<LocalBox> packed(uint8_t* data) const;
  // The memory of the boxes, in the order of packed().
  std::vector<LiveRows> rows() const;
};

// InvalidArgument for boxes that leave the tensor or cut a byte, and for rows that overlap or are
// not a multiple of the element's width apart.
Status check_held(const HeldBoxes& held);

// Of about `slice_bytes` where payloads allow it. The steps must outlive the slices.
std::vector<StageSlice> cut_slices(const HeldBoxes& held, std::span<const StageStep> steps,
                                   uint64_t slice_bytes);

// Boxes that are not held, and do not overlap, of a tensor that `deltas` change: with them its
// payloads can be decoded. They are the rest of tiles that its boxes cut, or of an array that is
// coded as one block. Those of the last delta that needs old values of it count; a publisher cuts
// tensors in the same way every time.
std::vector<Box> missing_boxes(std::span<const Delta> deltas, const HeldBoxes& held);

}  // namespace deltawire
