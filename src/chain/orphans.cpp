#include "chain/orphans.h"

#include <algorithm>
#include <vector>

#include "chain/names.h"

namespace deltawire {
namespace {

using Folders = std::map<std::string, std::vector<ObjectInfo>>;

Status find_in_folders(const OrphanSearch& search, uint64_t version, const Folders& folders,
                       NamedObjects* named, const TakeOrphan& take) {
  for (const auto& [folder, objects] : folders) {
    const bool old = std::all_of(objects.begin(), objects.end(), [&](const ObjectInfo& object) {
      return object.modified < search.before;
    });
    const bool all_noted = std::all_of(objects.begin(), objects.end(), [&](const auto& object) {
      return search.noted.contains(object.name);
    });
    if (!old || all_noted) continue;
    DW_ASSIGN_OR_RETURN(const auto* parts, named->parts_at(version));
    if (parts == nullptr) continue;
    for (const ObjectInfo& object : objects) {
      if (parts->contains(object.name) || search.noted.contains(object.name)) continue;
      DW_RETURN_IF_ERROR(take(object));
    }
  }
  return {};
}

}  // namespace

Status find_orphans(const OrphanSearch& search, const std::map<uint64_t, size_t>& records,
                    NamedObjects* named, const TakeOrphan& take) {
  std::map<uint64_t, Folders> found;
  for (const std::string_view prefix : {kPartPrefix, kFullPrefix, kPendingPrefix}) {
    DW_RETURN_IF_ERROR(list_all(search.store, prefix, "", [&](const ObjectInfo& object) {
      const auto attempt = attempt_folder(object.name);
      if (attempt && attempt->version <= search.head) {
        found[attempt->version][std::string(attempt->folder)].push_back(object);
      }
      return true;
    }));
  }
  for (const auto& [version, folders] : found) {
    // A record names one folder: where there are no more folders than records, all are named.
    const auto there = records.find(version);
    if (there != records.end() && folders.size() <= there->second) continue;
    DW_RETURN_IF_ERROR(find_in_folders(search, version, folders, named, take));
  }
  return {};
}

Status find_side_orphans(const OrphanSearch& search, NamedObjects* named, const TakeOrphan& take) {
  std::vector<ObjectInfo> found;
  DW_RETURN_IF_ERROR(list_all(search.store, kFilePrefix, "", [&](const ObjectInfo& object) {
    const auto attempt = attempt_folder(object.name);
    if (attempt && attempt->version <= search.head && object.modified < search.before &&
        !search.noted.contains(object.name)) {
      found.push_back(object);
    }
    return true;
  }));
  for (const ObjectInfo& object : found) {
    const uint64_t version = attempt_folder(object.name)->version;
    DW_ASSIGN_OR_RETURN(const bool is_named, named->is_named_side(object.name, version));
    if (!is_named) DW_RETURN_IF_ERROR(take(object));
  }
  return {};
}

}  // namespace deltawire
