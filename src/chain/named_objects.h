// Which objects the records of a chain name: what they do not name may go.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "chain/chain.h"
#include "chain/side_objects.h"
#include "chain/trash.h"

namespace deltawire {

// Remembers what it has read. One thread.
class NamedObjects {
 public:
  // `versions` are numbers of versions that are there, or were when they were listed.
  NamedObjects(const Chain& chain, const std::set<uint64_t>& versions)
      : chain_(chain), sides_(chain, versions) {}

  // Whether a record names this object, which an attempt at `version` has put, after all.
  Result<bool> is_needed(const TrashedObject& object, uint64_t version);
  // Parts that records of this version name; null when one cannot be read, so that nothing can be
  // told. Asks the store again rather than a listing: a hop record may just have come.
  Result<const std::set<std::string>*> parts_at(uint64_t version);
  // Whether a version names this object, a file beside the weights that `version` has put.
  Result<bool> is_named_side(std::string_view object, uint64_t version) {
    return sides_.is_named(object, version);
  }

 private:
  const Chain& chain_;
  NamedSideObjects sides_;
  std::map<std::string, bool> record_there_;
  std::map<uint64_t, std::optional<std::set<std::string>>> parts_;
};

}  // namespace deltawire
