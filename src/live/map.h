// From changes of tensors, as a feed has them, to changes of an engine's arrays.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "deltawire/status.h"
#include "deltawire/tensor.h"
#include "live/feed.h"
#include "live/window.h"

namespace deltawire {

// The part of a model that one worker has. What lies in no window is left out.
struct LiveMap {
  struct Tensor {
    DType dtype = DType::kBF16;
    Shape shape;
    std::vector<Window> windows;
  };
  std::map<std::string, Tensor> tensors;    // as checkpoints have them
  std::vector<uint64_t> array_elements;     // of each of the engine's arrays
  std::vector<unsigned> array_widths = {};  // bytes of an element
};

// InvalidArgument, naming tensor and window, unless every window lies in its tensor and its array,
// runs through its tensor in order, and has the tensor's width.
Status check_map(const LiveMap& map);

// New values for elements of an array. Offsets ascend, and none comes twice.
struct ArrayChanges {
  std::vector<uint32_t> offsets;
  std::vector<uint8_t> values;  // packed
};

struct MappedChanges {
  std::vector<ArrayChanges> arrays;          // as the map has them
  std::vector<std::string> changed_tensors;  // all that the route changes, mapped or not; sorted
};

// What `route` changes in each array of the map; of an element that several steps change, the last
// value. All that is read is checked first: Corruption names the part. BaseMismatch when a tensor
// has another dtype or shape than the map says. `threads`: 0 is one for each core.
Result<MappedChanges> map_feed(const std::vector<FeedStep>& route, const LiveMap& map,
                               unsigned threads = 0);

}  // namespace deltawire
