// Objects that hold the files beside the weights: files/VERSION-ATTEMPT/SHA256. The version that
// first has a file puts it; the versions after it name the same object for as long as they have the
// file. No version ever names again what the one before it did not name: so an object that no
// version names any more stays unnamed, and may go.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "chain/chain.h"

namespace deltawire {

// What to fetch for a file.
PartRef side_object(const SideFile& file);

// Corruption unless every file's object is one that this version or an older one may have put.
Status check_side_objects(const Manifest& manifest);

// Which of these objects the versions that are there name. One thread.
class NamedSideObjects {
 public:
  // `versions` are numbers of versions that are there, or were when they were listed.
  NamedSideObjects(const Chain& chain, const std::set<uint64_t>& versions)
      : chain_(chain), versions_(versions) {}

  // Whether one of the versions names `object`, which `version` has put: the oldest of them that is
  // not older than it tells. True, too, where its record cannot be read.
  Result<bool> is_named(std::string_view object, uint64_t version);

 private:
  using Names = std::set<std::string, std::less<>>;
  struct Read {
    bool gone = false;           // collected meanwhile
    std::optional<Names> names;  // none: damaged
  };
  Result<const Read*> read(uint64_t version);

  const Chain& chain_;
  const std::set<uint64_t>& versions_;
  std::map<uint64_t, Read> read_;
};

}  // namespace deltawire
