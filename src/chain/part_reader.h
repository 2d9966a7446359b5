// Reads whole parts from a store, checking size and sha-256 on the way.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "chain/chain.h"
#include "deltawire/store.h"

namespace deltawire {

// Called with the bytes that were just read; false: stop (Cancelled).
using ReadProgress = std::function<bool(uint64_t bytes)>;

// Corruption, or NotFound, when a part is not what the record vouches for. Reads it whole, in
// pieces.
Status check_part(Store& store, const PartRef& part, const ReadProgress& progress);

// All bytes of a part. Corruption when they are not those that the record vouches for.
Result<std::vector<uint8_t>> read_part(Store& store, const PartRef& part,
                                       const ReadProgress& progress);

// The same, keeping only the header of a safetensors file, with its length field: memory does not
// depend on the part's size. What is kept of other files is of no use.
Result<std::string> read_part_header(Store& store, const PartRef& part,
                                     const ReadProgress& progress);

// Reads only the header and checks nothing; for statistics only.
Result<std::string> read_header_alone(Store& store, const PartRef& part);

}  // namespace deltawire
