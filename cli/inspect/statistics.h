// How elements are spread over exponents, and how those of a delta moved, seen from its base.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/thread_pool.h"
#include "cli/context.h"
#include "delta/delta_reader.h"
#include "deltawire/checkpoint.h"
#include "deltawire/delta.h"
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
Json exponent_json(DType dtype, size_t field);

// By field: mask + 1 of them.
using ExponentCounts = std::vector<uint64_t>;
void count_exponents(const FloatForm& form, Bytes elements, ExponentCounts* counts);

// The tensors of one dtype. A step is the difference of the two bit patterns: for floats that keep
// their sign, how many representable values further from zero.
struct ChangeStatistics {
  static constexpr int kLargestStep = 16;

  DType dtype = DType::kU8;
  uint64_t num_elements = 0, num_changed = 0;
  std::array<uint64_t, 2 * kLargestStep + 1> steps{};  // from -kLargestStep
  uint64_t num_jumps_up = 0, num_jumps_down = 0;       // further than that, the same sign
  uint64_t num_sign_flips = 0;                         // floats only
  ExponentCounts elements, changed;                    // by the old exponent's field; floats only

  void add(const ChangeStatistics& other);
};

// By dtype. Checks that `base` is what the delta was made from, else BaseMismatch. Tensors that the
// delta brings whole are left out: they have no before. `tensor`: this one only, empty for all.
Result<std::vector<ChangeStatistics>> change_statistics(const Delta& delta, const Checkpoint& base,
                                                        std::string_view tensor, ThreadPool* pool,
                                                        const Progress& progress);

void say_movement(const Context& context, const ChangeStatistics& statistics);
Json movement_json(const ChangeStatistics& statistics);

}  // namespace deltawire::cli
