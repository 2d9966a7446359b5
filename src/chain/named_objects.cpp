#include "chain/named_objects.h"

#include "chain/hop_records.h"
#include "chain/names.h"

namespace deltawire {

std::string object_of(const SideFile& file) {
  return std::string(kFilePrefix) + file.attempt + "/" + file.sha256.hex();
}

PartRef side_object(const SideFile& file) {
  return {object_of(file), file.size_bytes, file.sha256};
}

Status check_side_objects(const Manifest& manifest) {
  for (const SideFile& file : manifest.files) {
    const std::string object = side_object(file).name;
    const auto attempt = attempt_folder(object);
    const bool in_folder =
        attempt && attempt->folder.size() == kFilePrefix.size() + file.attempt.size() + 1;
    if (!check_object_name(object).ok() || !in_folder || attempt->version > manifest.version) {
      return corruption("file " + file.name +
                        ": not an object of this version or an earlier one: " + object);
    }
  }
  return {};
}

Result<const NamedSideObjects::Read*> NamedSideObjects::read(uint64_t version) {
  const auto known = read_.find(version);
  if (known != read_.end()) return &known->second;
  const Result<VersionRecord> record = chain_.version(version);
  Read result;
  if (record.ok()) {
    result.names.emplace();
    for (const SideFile& file : record->manifest.files) {
      result.names->insert(side_object(file).name);
    }
  } else if (record.status().code() == Code::kNotFound) {
    result.gone = true;
  } else if (record.status().code() != Code::kCorruption &&
             record.status().code() != Code::kUnsupported) {
    return record.status();
  }
  return &(read_[version] = std::move(result));
}

Result<bool> NamedSideObjects::is_named(std::string_view object, uint64_t version) {
  for (auto at = versions_.lower_bound(version); at != versions_.end(); ++at) {
    DW_ASSIGN_OR_RETURN(const Read* found, read(*at));
    if (found->gone) continue;
    return !found->names || found->names->contains(object);
  }
  return false;
}

Result<bool> NamedObjects::is_needed(const TrashedObject& object, uint64_t version) {
  if (object.name.starts_with(kFilePrefix)) return is_named_side(object.name, version);
  if (!object.record.empty()) {
    const auto known = record_there_.find(object.record);
    if (known == record_there_.end()) {
      const Result<ObjectInfo> info = chain_.store().stat(object.record);
      if (!info.ok() && info.status().code() != Code::kNotFound) return info.status();
      record_there_[object.record] = info.ok();
    }
    if (record_there_[object.record]) return true;
  }
  DW_ASSIGN_OR_RETURN(const auto* named, parts_at(version));
  return named == nullptr || named->contains(object.name);
}

Result<const std::set<std::string>*> NamedObjects::parts_at(uint64_t version) {
  const auto known = parts_.find(version);
  if (known != parts_.end()) return known->second ? &*known->second : nullptr;
  std::optional<std::set<std::string>>& named = parts_[version];
  const auto unread = [](const Status& status) -> Result<const std::set<std::string>*> {
    if (is_damage(status)) return nullptr;
    return status;
  };
  std::set<std::string> found;
  const Result<VersionRecord> record = chain_.version(version);
  if (!record.ok() && record.status().code() != Code::kNotFound) return unread(record.status());
  if (record.ok()) {
    for (const PartRef& part : record->manifest.parts) found.insert(part.name);
  }
  DW_ASSIGN_OR_RETURN(const auto hops, list_hops(chain_, version, version, SIZE_MAX));
  for (const HopName& name : hops) {
    const Result<HopRecord> hop = read_hop(chain_, name);
    if (!hop.ok() && hop.status().code() == Code::kNotFound) continue;
    if (!hop.ok()) return unread(hop.status());
    for (const PartRef& part : hop->parts) found.insert(part.name);
  }
  named = std::move(found);
  return &*named;
}

}  // namespace deltawire
