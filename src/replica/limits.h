// What a store that is not trusted may make a replica fetch.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "chain/plan.h"
#include "deltawire/status.h"

namespace deltawire {

uint64_t weights_bytes(const Schema& schema);

// Corruption, naming the hop, when its parts are larger than any codec makes them for weights of
// this size, or when a whole checkpoint has more than its tensors and headers need. Files beside
// the weights are checked where manifests are read. `local_bytes`: weights that are there already
// and may be larger.
Status check_hop_sizes(std::span<const Hop> hops, const Schema& schema, uint64_t local_bytes);

// The plain file name of an object of a version stored whole: "full/0000000012-9f3c/config.json" is
// "config.json". Corruption when it would not stay in its folder.
Result<std::string> checkpoint_file_of(const PartRef& part);

}  // namespace deltawire
