#pragma once

#include "kernels/kernels.h"

namespace deltawire {

const Kernels& scalar_kernels() noexcept;

}  // namespace deltawire
