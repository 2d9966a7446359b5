// Both lanes of sum128, with all words of a tensor added, to its digest.
#pragma once

#include <array>
#include <cstdint>

#include "deltawire/digest.h"

namespace deltawire {

Digest finish_sums(std::array<uint64_t, 2> lanes, uint64_t size_bytes);

}  // namespace deltawire
