// How the elements of a delta moved, seen from its base.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/thread_pool.h"
#include "cli/inspect/exponents.h"
#include "delta/delta_reader.h"
#include "deltawire/checkpoint.h"
#include "deltawire/delta.h"

namespace deltawire::cli {

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

}  // namespace deltawire::cli
