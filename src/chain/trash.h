// Objects to be removed: noted first, deleted when the grace period is over.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "deltawire/chain.h"
#include "deltawire/status.h"
#include "deltawire/store.h"

namespace deltawire {

// Ascending numbers as ranges.
std::vector<VersionRange> ranges_of(const std::vector<uint64_t>& versions);

struct TrashedObject {
  std::string name;  // of an attempt to publish: under parts/, full/, files/ or pending/
  uint64_t size_bytes = 0;
  std::string record;  // the manifest or hop record that named it; empty: none did

  bool operator==(const TrashedObject&) const = default;
};

// Put before the records it is about are removed: an announcement, too. While it is there, these
// versions may be going.
struct Trash {
  int64_t created = 0;  // seconds since 1970
  std::vector<VersionRange> versions;
  std::vector<TrashedObject> objects;

  bool operator==(const Trash&) const = default;
};

std::string serialise_trash(const Trash& trash);
// Corruption, too, when it names an object that no attempt to publish puts.
Result<Trash> parse_trash(std::string_view json);

// Puts it under a new name, which it returns.
Result<std::string> put_trash(Store& store, const Trash& trash);

// Seconds since 1970 by the store's clock, the one that sets the times of its objects. A store that
// does not tell it is given an empty note, which goes again. Unsupported when its objects have no
// times.
Result<int64_t> store_time(Store& store);

// One object under trash/; its contents may be unreadable.
struct ListedTrash {
  ObjectInfo object;
  Result<Trash> trash;
};
Result<std::vector<ListedTrash>> list_trash(Store& store);

}  // namespace deltawire
