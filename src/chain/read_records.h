// Many records at once: what each of them names.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "chain/chain.h"
#include "chain/names.h"

namespace deltawire {

struct ReadRecord {
  std::string name;  // of its object
  std::string signed_by;
  std::vector<PartRef> parts;
  std::vector<SideFile> files;  // of a version
};

// Of these versions, then of these hops. Damaged ones are left out and told to `notes`; those that
// are gone are left out.
Result<std::vector<ReadRecord>> read_records(const Chain& chain,
                                             const std::vector<uint64_t>& versions,
                                             const std::vector<HopName>& hops,
                                             std::vector<std::string>* notes);

}  // namespace deltawire
