// What a worker has to keep beside its boxes of a tensor to decode payloads by itself: the rest of
// tiles that the boxes cut, or of an array that is coded as one block.
#pragma once

#include <span>
#include <vector>

#include "live/stage.h"

namespace deltawire {

// Boxes that are not held, and do not overlap, of a tensor that `deltas` change: with them its
// payloads can be decoded. Those of the last delta that needs old values of it count; a publisher
// cuts tensors in the same way every time.
std::vector<Box> missing_boxes(std::span<const Delta> deltas, const HeldBoxes& held);

}  // namespace deltawire
