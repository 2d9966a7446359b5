// A packed file of a version that is stored whole, once it is fetched.
#pragma once

#include <filesystem>

#include "base/thread_pool.h"
#include "deltawire/status.h"

namespace deltawire {

// Writes the plain file to `to`, which is not synced, and removes `from`. Corruption when it is no
// packed file.
Status unpack_file(const std::filesystem::path& from, const std::filesystem::path& to,
                   ThreadPool* pool);

}  // namespace deltawire
