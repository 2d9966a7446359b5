// Who reads a feed: a file for each worker, which holds a lock on it while it lives and writes
// there which version it has. A worker that died, in whatever way, holds no lock.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "deltawire/feed.h"
#include "replica/local_layout.h"

namespace deltawire {

// The oldest version that a living worker has; none: there are no workers. Removes the files of the
// dead.
std::optional<uint64_t> slowest_feed_worker(const LocalLayout& layout);

}  // namespace deltawire
