// Copies of many bytes.
#pragma once

#include "base/bytes.h"
#include "base/thread_pool.h"

namespace deltawire {

// Copies all of `from`, with many threads: one alone is slower than memory, and than its page
// faults.
void copy_parallel(Bytes from, MutableBytes to, ThreadPool* pool);

}  // namespace deltawire
