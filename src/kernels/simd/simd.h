#pragma once

#include <span>

#include "kernels/kernels.h"

namespace deltawire {

// The Highway targets compiled in that this machine can run, best first. May be empty.
std::span<const Kernels* const> simd_kernels() noexcept;

}  // namespace deltawire
