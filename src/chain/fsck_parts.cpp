#include "chain/fsck_parts.h"

#include "base/text.h"
#include "chain/named_objects.h"
#include "chain/names.h"
#include "chain/part_reader.h"
#include "format/checkpoint_files.h"
#include "format/packed_file.h"

namespace deltawire {

Status FsckParts::check_parts(const std::string& record, bool whole,
                              const std::vector<PartRef>& parts, DescribedState base,
                              DescribedState target) {
  for (const PartRef& part : parts) {
    if (!named_.insert(part.name).second) {
      out_.bad(record, "part " + part.name + " is named twice");
    }
    ++out_.report.num_parts;
    out_.report.bytes += part.size_bytes;
  }
  if (!options_.contents) {
    check_sizes(record, parts);
    return {};
  }
  DeltaPartsCheck delta(base, target);
  std::optional<WholeFilesCheck> files;
  if (target.schema != nullptr) files.emplace(*target.schema);
  std::mutex mutex;
  const auto check = [&](const DeltaPart* part, const PlainFile& file) -> Status {
    const std::lock_guard lock(mutex);
    return part != nullptr ? delta.add(*part) : files->add(file.header, file.size_bytes);
  };
  DW_ASSIGN_OR_RETURN(const bool all_sound,
                      check_all(parts, whole, target.schema != nullptr, check));
  if (!all_sound || target.schema == nullptr) return {};
  return out_.note((whole ? files->finish() : delta.finish()).at(out_.place(record)));
}

Result<bool> FsckParts::check_all(const std::vector<PartRef>& parts, bool whole, bool described,
                                  const CheckContents& check) {
  std::mutex mutex;
  bool all_sound = true;
  Status failure;
  pool_.parallel_for(parts.size(), [&](size_t i, unsigned) {
    Status status = check_part(parts[i], whole, described, check);
    const std::lock_guard lock(mutex);
    if (status.ok()) return;
    all_sound = false;
    status = out_.note(std::move(status));
    if (failure.ok()) failure = std::move(status);
  });
  DW_RETURN_IF_ERROR(std::move(failure));
  return all_sound;
}

Status FsckParts::check_part(const PartRef& part, bool whole, bool described,
                             const CheckContents& check) {
  const ReadProgress progress = [&](uint64_t bytes) {
    const std::lock_guard lock(progress_mutex_);
    done_ += bytes;
    return !options_.progress || options_.progress(done_, out_.report.bytes);
  };
  const std::string place = out_.place(part.name);
  if (whole) {
    DW_ASSIGN_OR_RETURN(const std::string header, read_part_header(out_.store, part, progress));
    if (is_packed_file(part.name)) return check_packed(part, header, described, check).at(place);
    if (!described || !part.name.ends_with(kSafetensorsSuffix)) return {};
    return check(nullptr, {header, part.size_bytes}).at(place);
  }
  DW_ASSIGN_OR_RETURN(const std::vector<uint8_t> bytes, read_part(out_.store, part, progress));
  DW_ASSIGN_OR_RETURN(DeltaPart parsed, located(parse_part(bytes), place));
  return described ? check(&parsed, {}).at(place) : Status();
}

// Its sizes fit, and the header of the plain file is that of the version.
Status FsckParts::check_packed(const PartRef& part, const std::string& front, bool described,
                               const CheckContents& check) {
  DW_ASSIGN_OR_RETURN(const PackedFile packed, parse_packed_front(front, part.size_bytes));
  return described ? check(nullptr, {packed.plain_header, packed.plain_bytes}) : Status();
}

void FsckParts::check_sizes(const std::string& record, const std::vector<PartRef>& parts) {
  for (const PartRef& part : parts) {
    const auto found = objects_.find(part.name);
    if (found == objects_.end()) {
      out_.problem(not_found(out_.place(record) + ": part " + part.name + " is missing"));
    } else if (found->second.size_bytes != part.size_bytes) {
      out_.bad(part.name, "expected " + std::to_string(part.size_bytes) + " bytes, got " +
                              std::to_string(found->second.size_bytes));
    }
  }
}

Status FsckParts::check_files(const std::string& record, const Manifest& m) {
  std::set<std::string> objects;
  std::vector<PartRef> unread;
  for (const SideFile& file : m.files) {
    PartRef object = side_object(file);
    const bool own = attempt_folder(object.name)->version == m.version;
    if (!own && last_files_of_ && *last_files_of_ + 1 == m.version &&
        !last_files_.contains(object.name)) {
      out_.bad(record, "file " + file.name + ": the version before does not have " + object.name);
    }
    if (!objects.insert(object.name).second || !named_.insert(object.name).second) continue;
    ++out_.report.num_files;
    out_.report.bytes += object.size_bytes;
    unread.push_back(std::move(object));
  }
  last_files_of_ = m.version;
  last_files_ = std::move(objects);
  if (!options_.contents) {
    check_sizes(record, unread);
    return {};
  }
  return check_all(unread, true, false, {}).status();
}

void FsckParts::check_copies(const std::string& record, const std::vector<SideFile>& files,
                             const std::vector<PartRef>& parts) {
  std::map<std::string, const PartRef*> copies;
  for (const PartRef& part : parts) {
    const std::string name = part.name.substr(part.name.rfind('/') + 1);
    if (!is_weights_file(name)) copies[name] = &part;
  }
  for (const SideFile& file : files) {
    if (!check_object_name(file.name).ok()) continue;
    const auto copy = copies.find(file.name);
    if (copy == copies.end() || copy->second->sha256 != file.sha256) {
      out_.bad(record, "file " + file.name + " is " +
                           (copy == copies.end() ? "missing" : "another") +
                           " in the version stored whole");
    }
    if (copy != copies.end()) copies.erase(copy);
  }
  for (const auto& [name, part] : copies) {
    out_.bad(record, part->name + ": the version has no file " + name);
  }
}

}  // namespace deltawire
