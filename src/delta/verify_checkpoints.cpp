// Are two checkpoints the same, bit by bit, and if not, where do they part?
#include <algorithm>
#include <iterator>
#include <vector>

#include "base/bytes.h"
#include "base/thread_pool.h"
#include "base/waves.h"
#include "delta/output.h"
#include "deltawire/checkpoint.h"
#include "deltawire/delta.h"
#include "format/layout.h"
#include "kernels/kernels.h"

namespace deltawire {
namespace {

std::string bits_of(const uint8_t* element, size_t width) {
  const std::vector<uint8_t> high_first(std::reverse_iterator(element + width),
                                        std::reverse_iterator(element));
  return "0x" + to_hex(high_first);
}

Shape coordinate_of(const TensorView& tensor, uint64_t byte) {
  uint64_t element = byte * 8 / dtype_bits(tensor.dtype);
  Shape coordinate(tensor.shape.size());
  for (size_t d = tensor.shape.size(); d-- > 0;) {
    coordinate[d] = element % tensor.shape[d];
    element /= tensor.shape[d];
  }
  return coordinate;
}

// The element that the differing byte belongs to, whole: both halves of a complex number.
FirstDifference first_difference(const TensorView& a, const TensorView& b, uint64_t byte,
                                 const std::filesystem::path& file) {
  const size_t width = std::max(1U, dtype_bits(a.dtype) / 8);
  const uint64_t start = byte / width * width;
  return {file.string(), coordinate_of(a, byte), bits_of(a.bytes.data() + start, width),
          bits_of(b.bytes.data() + start, width)};
}

// Elements are counted as `diff` counts them.
void compare(const CheckpointTensor& a, const CheckpointTensor& b, const Checkpoint& other,
             TensorDifference* out) {
  const size_t width = layout_of(a.view.dtype).width;
  const uint8_t *left = a.view.bytes.data(), *right = b.view.bytes.data();
  const uint64_t n = a.view.bytes.size() / width;
  out->tensor = a.view.name;
  out->num_elements = n;
  std::vector<uint16_t> positions(kSegmentElements + kStripElements);
  for (uint64_t at = 0; at < n; at += kSegmentElements) {
    const size_t length = size_t(std::min<uint64_t>(kSegmentElements, n - at));
    const size_t found = kernels().diff[width_index(width)](left + at * width, right + at * width,
                                                            length, positions.data());
    if (found != 0 && !out->first) {
      out->first =
          first_difference(a.view, b.view, (at + positions[0]) * width, other.files()[b.file].path);
    }
    out->num_different += found;
  }
}

}  // namespace

Result<VerifyReport> verify_checkpoints(const std::filesystem::path& a,
                                        const std::filesystem::path& b,
                                        const ApplyOptions& options) {
  DW_ASSIGN_OR_RETURN(const Checkpoint left, open_checkpoint(a));
  DW_ASSIGN_OR_RETURN(const Checkpoint right, open_checkpoint(b));
  VerifyReport report;
  std::vector<std::pair<const CheckpointTensor*, const CheckpointTensor*>> pairs;
  std::vector<uint64_t> sizes;
  for (const CheckpointTensor& tensor : left.tensors()) {
    ++report.num_tensors;
    const CheckpointTensor* other = right.find(tensor.view.name);
    const auto differs = [&](std::string what) {
      report.differences.push_back({tensor.view.name, std::move(what), 0, 0, {}});
    };
    if (other == nullptr) {
      differs("only in " + a.string());
    } else if (other->view.dtype != tensor.view.dtype) {
      differs("dtype " + std::string(dtype_name(tensor.view.dtype)) + " against " +
              std::string(dtype_name(other->view.dtype)));
    } else if (other->view.shape != tensor.view.shape) {
      differs("shape " + shape_to_string(tensor.view.shape) + " against " +
              shape_to_string(other->view.shape));
    } else {
      pairs.emplace_back(&tensor, other);
      sizes.push_back(tensor.view.bytes.size());
      report.weights_bytes += tensor.view.bytes.size();
    }
  }
  for (const CheckpointTensor& tensor : right.tensors()) {
    if (left.find(tensor.view.name) == nullptr) {
      ++report.num_tensors;
      report.differences.push_back({tensor.view.name, "only in " + b.string(), 0, 0, {}});
    }
  }
  ThreadPool pool(options.threads);
  std::vector<TensorDifference> compared(pairs.size());
  DW_RETURN_IF_ERROR(Waves(std::move(sizes), Waves::Inside::kOneThread, &pool, options.progress)
                         .run(
                             [&](size_t i, ThreadPool*) -> Status {
                               compare(*pairs[i].first, *pairs[i].second, right, &compared[i]);
                               return {};
                             },
                             [](size_t) { return Status(); }));
  DW_RETURN_IF_ERROR(left.check_unchanged());
  DW_RETURN_IF_ERROR(right.check_unchanged());
  for (TensorDifference& difference : compared) {
    report.num_elements += difference.num_elements;
    report.num_different += difference.num_different;
    if (difference.num_different != 0) report.differences.push_back(std::move(difference));
  }
  std::sort(
      report.differences.begin(), report.differences.end(),
      [](const TensorDifference& x, const TensorDifference& y) { return x.tensor < y.tensor; });
  return report;
}

}  // namespace deltawire
