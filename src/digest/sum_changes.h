// What changes of single elements do to the sums of an array.
#pragma once

#include <span>

#include "base/bytes.h"
#include "base/thread_pool.h"
#include "deltawire/digest.h"

namespace deltawire {

// `bytes` are those that were added to `sums`, from offset 0, and have not been changed yet.
// Positions count elements of `width` bytes; they ascend and lie inside.
void replace_elements(unsigned width, Bytes bytes, std::span<const uint64_t> positions,
                      Bytes values, ThreadPool* pool, Sums* sums);

}  // namespace deltawire
