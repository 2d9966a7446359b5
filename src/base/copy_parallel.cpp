#include "base/copy_parallel.h"

#include <algorithm>
#include <cstring>

namespace deltawire {

void copy_parallel(Bytes from, MutableBytes to, ThreadPool* pool) {
  constexpr size_t kSlice = size_t{1} << 20;
  parallel_for(pool, (from.size() + kSlice - 1) / kSlice, [&](size_t i, unsigned) {
    const size_t at = i * kSlice;
    std::memcpy(to.data() + at, from.data() + at, std::min(kSlice, from.size() - at));
  });
}

}  // namespace deltawire
