// xxh3-128 of a long input, cut so that most of it can be computed side by side.
#pragma once

#include "base/bytes.h"
#include "deltawire/digest.h"
#include "kernels/xxh3_math.h"

namespace deltawire::xxh3 {

const Secret& secret() noexcept;

// Adds stripe n of a block.
void add_stripe(const uint8_t* stripe, size_t n, Lanes* lanes) noexcept;

// `lanes` have come through all blocks. `last` are the last bytes of the input: 1024, or all of it.
// A short input needs no lanes.
Digest finish(const Lanes& lanes, Bytes last, uint64_t size_bytes);

}  // namespace deltawire::xxh3
