// What a box adds to the sums of its tensor.
#pragma once

#include <vector>

#include "base/bytes.h"
#include "base/thread_pool.h"
#include "deltawire/digest.h"
#include "tensor/box.h"

namespace deltawire {

// Bytes of the box's contents, from `offset` of them on.
void add_contents(const BoxRows& rows, Bytes bytes, uint64_t offset, Sums* sums);

// All of them together. Neighbours first: what is added stays small until the end.
Sums added_up(std::vector<Sums> parts);

// All of the contents. Threads share a stretch of bytes, or rows.
Result<Sums> sums_of_box(const BoxRows& rows, Bytes contents, ThreadPool* pool);

}  // namespace deltawire
