// Which engine has which version of a source: kept beside the versions, so that whoever pushes next
// knows what an engine has missed, and nothing is removed that one of them still needs.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "deltawire/status.h"

namespace deltawire {

// By URL; 0: it has acknowledged nothing yet. An engine that was told once is counted until it is
// forgotten.
using SlimeAcks = std::map<std::string, uint64_t>;

Result<SlimeAcks> read_slime_acks(const std::filesystem::path& source);
Status write_slime_acks(const std::filesystem::path& source, const SlimeAcks& acks);

// Removes versions that every engine has, but for the newest: the publisher and a call that is made
// again prove themselves by it. A folder goes with one rename. Returns the versions.
Result<std::vector<uint64_t>> remove_acknowledged(const std::filesystem::path& source,
                                                  const std::vector<uint64_t>& versions,
                                                  const SlimeAcks& acks);

}  // namespace deltawire
