// Many records at once: what each of them names.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "chain/chain.h"
#include "chain/names.h"

namespace deltawire {

// Several requests at once: a store has latency.

// Calls body(i) for every i below n, on a few threads. Each notes its own outcome.
inline void request_in_parallel(size_t n, const std::function<void(size_t)>& body) {
  constexpr size_t kThreads = 8;
  if (n == 0) return;
  ThreadPool pool(unsigned(std::min(n, kThreads)));
  pool.parallel_for(n, [&](size_t i, unsigned) { body(i); });
}

struct ReadRecord {
  std::string name;  // of its object
  std::string signed_by;
  std::vector<PartRef> parts;
  std::vector<SideFile> files;  // of a version
};

// Reads the records of these versions, then of these hops. Damaged ones are skipped with a note,
// missing ones without.
Result<std::vector<ReadRecord>> read_records(const Chain& chain,
                                             const std::vector<uint64_t>& versions,
                                             const std::vector<HopName>& hops,
                                             std::vector<std::string>* notes);

}  // namespace deltawire
