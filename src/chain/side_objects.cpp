#include "chain/side_objects.h"

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
      return corruption("file " + file.name + ": no version up to this one puts " + object);
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

}  // namespace deltawire
