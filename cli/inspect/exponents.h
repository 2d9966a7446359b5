// Exponents of floats: how the elements of a tensor, and their changes, are sorted into classes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "cli/context.h"
#include "deltawire/tensor.h"

namespace deltawire::cli {

// Where the exponent is in an element.
struct FloatForm {
  uint8_t width = 2;  // bytes
  uint8_t shift = 0;
  uint16_t mask = 0;  // the exponent's field, shifted down
  int bias = 0;
};

// None for integers, and for floats without an exponent of their own (F4, F6, F8_E8M0 scales).
std::optional<FloatForm> float_form(DType dtype) noexcept;

// "-7": the power of two; "0, subnormal" and "inf, nan" for the fields that mean those.
std::string exponent_name(DType dtype, size_t field);
// For JSON: a number, or one of those two.
nlohmann::ordered_json exponent_json(DType dtype, size_t field);

// By field: mask + 1 of them.
using ExponentCounts = std::vector<uint64_t>;
void count_exponents(const FloatForm& form, Bytes elements, ExponentCounts* counts);

// The same from pieces spread evenly over a large tensor, a quarter of a million elements. Returns
// how many elements were looked at.
uint64_t sample_exponents(const FloatForm& form, Bytes elements, ExponentCounts* counts);

}  // namespace deltawire::cli
