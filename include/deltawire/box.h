// A box of a tensor: what one rank of a sharded trainer holds.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "deltawire/status.h"
#include "deltawire/tensor.h"

namespace deltawire {

// Offset and extent per dimension. Without dimensions: all of the tensor.
struct Box {
  Shape offset, extent;

  bool whole() const noexcept { return offset.empty(); }
  bool operator==(const Box&) const = default;
};

// "0,512+1024,512": offsets, then extents.
std::string box_to_string(const Box& box);
Result<Box> parse_box(std::string_view text);

// InvalidArgument unless the box lies inside the shape and cuts no byte in two.
Status check_box(const Box& box, DType dtype, const Shape& shape);
// The shape of the box's contents.
Shape box_shape(const Box& box, const Shape& shape);

// Copies a box out of a row-major tensor into a contiguous array, and back. The box must have
// passed check_box; the arrays must have the sizes that shape and box imply.
void copy_box_out(const Box& box, DType dtype, const Shape& shape, std::span<const uint8_t> tensor,
                  std::span<uint8_t> contents);
void copy_box_in(const Box& box, DType dtype, const Shape& shape, std::span<const uint8_t> contents,
                 std::span<uint8_t> tensor);

}  // namespace deltawire
