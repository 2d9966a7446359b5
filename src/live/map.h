// From changes of tensors, as a feed has them, to changes of an engine's arrays.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "deltawire/status.h"
#include "deltawire/tensor.h"
#include "live/feed.h"

namespace deltawire {

// A window of a tensor, as numbers: which element of an array is that element of a tensor?

// Where elements of a tensor are in an array of an engine: element (i, j, ...) of a window is
// number first + i * strides[0] + j * strides[1] ... of the tensor, counted as checkpoints have it,
// and number array_first + i * array_strides[0] + ... of the array's memory.
struct Window {
  std::vector<uint64_t> extent;
  uint64_t first = 0;
  std::vector<uint64_t> strides;
  uint32_t array = 0;  // which of the engine's arrays
  uint64_t array_first = 0;
  std::vector<uint64_t> array_strides;
};

inline constexpr size_t kMaxWindowDims = 8;

// Empty: a sound window. It runs through the tensor in order: each dimension's stride spans all
// dimensions behind it, so that an element is in it at most once.
std::string_view window_defect(const Window& window, uint64_t num_elements,
                               uint64_t array_elements);

// A sound window in as few dimensions as it allows. Rows of a matrix need one, columns two.
class WindowPlan {
 public:
  explicit WindowPlan(const Window& window);

  // Elements of the tensor that may be in it: from first() up to end().
  uint64_t first() const noexcept { return first_; }
  uint64_t end() const noexcept { return end_; }
  // False: that element is not in the window.
  bool find(uint64_t position, uint64_t* offset) const noexcept {
    uint64_t rest = position - first_, at = array_first_;
    for (size_t d = 0; d < num_dims_; ++d) {
      const Dim& dim = dims_[d];
      const uint64_t i = dim.stride == 1 ? rest : rest / dim.stride;
      if (i >= dim.extent) return false;
      rest -= i * dim.stride;
      at += i * dim.array_stride;
    }
    *offset = at;
    return rest == 0;
  }

 private:
  struct Dim {
    uint64_t extent = 1, stride = 1, array_stride = 1;
  };
  std::array<Dim, kMaxWindowDims> dims_;
  size_t num_dims_ = 0;
  uint64_t first_ = 0, end_ = 0, array_first_ = 0;
};

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
  std::vector<std::string> changed_tensors;  // all that the steps change, mapped or not; sorted
};

// What `steps` change in each array of the map; of an element that several change, the last
// value. All that is read is checked first: Corruption names the part. BaseMismatch when a tensor
// has another dtype or shape than the map says. `threads`: 0 is one for each core.
Result<MappedChanges> map_feed(const std::vector<FeedStep>& steps, const LiveMap& map,
                               unsigned threads = 0);

}  // namespace deltawire
