// Finds which objects the records of a chain name; others may be removed.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "chain/chain.h"
#include "chain/trash.h"

namespace deltawire {

// Objects that hold the files beside the weights: files/VERSION-ATTEMPT/SHA256. The version that
// first has a file puts it; the versions after it name the same object for as long as they have the
// file. No version ever names again what the one before it did not name: so an object that no
// version names any more stays unnamed, and may go.

// The object to fetch for a file.
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
