#include "device/tensor_map.h"

#include <algorithm>
#include <numeric>

#include "base/bytes.h"
#include "format/layout.h"

namespace deltawire::cuda {
namespace {

// The tensor and its boxes, a list for each.
struct Dims {
  Shape shape;
  struct Piece {
    void* data;
    Shape offset, extent;
    std::vector<int64_t> strides;
  };
  std::vector<Piece> pieces;

  void erase(size_t d) {
    const auto drop = [d](auto& list) { list.erase(list.begin() + ptrdiff_t(d)); };
    drop(shape);
    for (Piece& piece : pieces) {
      drop(piece.offset);
      drop(piece.extent);
      drop(piece.strides);
    }
  }

  // Whether in every box an element of dimension d + 1 follows the last of its row as any other.
  bool runs_on(size_t d) const {
    return std::all_of(pieces.begin(), pieces.end(), [&](const Piece& piece) {
      int64_t row = 0;
      return piece.extent[d + 1] == shape[d + 1] &&
             (piece.extent[d] == 1 ||
              (!__builtin_mul_overflow(piece.strides[d + 1], shape[d + 1], &row) &&
               piece.strides[d] == row));
    });
  }

  // Makes one dimension of d and the next.
  void merge(size_t d) {
    for (Piece& piece : pieces) {
      piece.offset[d + 1] += piece.offset[d] * shape[d + 1];
      piece.extent[d + 1] *= piece.extent[d];
    }
    shape[d + 1] *= shape[d];
    erase(d);
  }

  // A division for each dimension is what an element costs.
  void simplify() {
    for (size_t d = shape.size(); d-- > 0;) {
      if (shape[d] == 1 && shape.size() > 1) erase(d);
    }
    for (size_t d = shape.size() - 1; d-- > 0;) {
      if (runs_on(d)) merge(d);
    }
  }
};

// Whole elements as codecs count them: a complex number is two.
void split_elements(size_t parts, Dims* dims) {
  dims->shape.push_back(parts);
  for (Dims::Piece& piece : dims->pieces) {
    for (int64_t& stride : piece.strides) stride *= int64_t(parts);
    piece.offset.push_back(0);
    piece.extent.push_back(parts);
    piece.strides.push_back(1);
  }
}

Result<Dims> open_boxes(const MappedTensor& tensor) {
  Dims dims{tensor.shape, {}};
  for (size_t b = 0; b < tensor.boxes.size(); ++b) {
    const MappedBox& mapped = tensor.boxes[b];
    const std::string place = "box " + std::to_string(b);
    DW_RETURN_IF_ERROR(check_box(mapped.box, tensor.dtype, tensor.shape).at(place));
    if (mapped.strides.size() != tensor.shape.size()) {
      return invalid_argument(place + ": " + std::to_string(mapped.strides.size()) +
                              " strides for a tensor " + shape_to_string(tensor.shape));
    }
    const bool whole = mapped.box.whole();
    const Shape& extent = whole ? tensor.shape : mapped.box.extent;
    if (std::find(extent.begin(), extent.end(), 0) != extent.end()) continue;
    if (mapped.data == nullptr) return invalid_argument(place + ": its memory is at null");
    dims.pieces.push_back(
        {mapped.data, whole ? Shape(extent.size(), 0) : mapped.box.offset, extent, mapped.strides});
  }
  return dims;
}

}  // namespace

Result<TensorMap> map_tensor(const MappedTensor& tensor) {
  const unsigned width = layout_of(tensor.dtype).width, bits = dtype_bits(tensor.dtype);
  if (bits % 8 != 0) {
    return unsupported(std::string(dtype_name(tensor.dtype)) + " through a map: packed elements");
  }
  TensorMap map;
  DW_ASSIGN_OR_RETURN(const uint64_t size_bytes, tensor_size_bytes(tensor.dtype, tensor.shape));
  map.num_elements = size_bytes / width;
  DW_ASSIGN_OR_RETURN(Dims dims, open_boxes(tensor));
  if (map.num_elements == 0) return map;
  split_elements(bits / 8 / width, &dims);  // into one, mostly, which goes away again
  dims.simplify();
  if (dims.shape.size() > kMaxMappedDims) {
    return unsupported("a map of " + std::to_string(dims.shape.size()) +
                       " dimensions that do not " + "join; " + std::to_string(kMaxMappedDims) +
                       " can be");
  }
  map.num_dims = unsigned(dims.shape.size());
  std::copy(dims.shape.begin(), dims.shape.end(), map.shape.begin());
  for (const Dims::Piece& piece : dims.pieces) {
    MappedPiece made{piece.data, {}, {}, {}};
    std::copy(piece.offset.begin(), piece.offset.end(), made.offset);
    std::copy(piece.extent.begin(), piece.extent.end(), made.extent);
    std::copy(piece.strides.begin(), piece.strides.end(), made.strides);
    map.pieces.push_back(made);
  }
  return map;
}

}  // namespace deltawire::cuda
