// The layout of a dtype's elements for codecs.
#pragma once

#include "codec/codec.h"
#include "deltawire/tensor.h"

namespace deltawire {

// Width and class key of a dtype: the exponent of floats, the top bits of integers. Complex numbers
// are pairs of floats, packed 4- and 6-bit elements are bytes: "elements" in a delta are what
// codecs see, so a C64 tensor has twice as many as its shape says.
Layout layout_of(DType dtype) noexcept;
// The same of an array of this shape, whose last two dimensions are a matrix.
Layout layout_of(DType dtype, const Shape& shape) noexcept;

}  // namespace deltawire
