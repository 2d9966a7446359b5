// The sets of kernels that are compiled in, each in a folder of its own.
#pragma once

#include <span>

#include "kernels/kernels.h"

namespace deltawire {

const Kernels& scalar_kernels() noexcept;

// The Highway targets compiled in that this machine can run, best first. May be empty.
std::span<const Kernels* const> simd_kernels() noexcept;

}  // namespace deltawire
