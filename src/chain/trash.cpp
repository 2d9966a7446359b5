#include "chain/trash.h"

#include <cstdio>

#include "base/text.h"
#include "chain/names.h"
#include "format/record.h"

namespace deltawire {
namespace {

constexpr std::string_view kTrashFormat = "trash/1";
constexpr uint64_t kMaxTrashBytes = uint64_t{64} << 20;

std::string versions_json(const std::vector<VersionRange>& versions) {
  std::string list;
  for (const VersionRange& range : versions) {
    list.append(list.empty() ? "[" : ",[").append(std::to_string(range.first));
    list.append(",").append(std::to_string(range.last)).append("]");
  }
  return "[" + list + "]";
}

std::string objects_json(const std::vector<TrashedObject>& objects) {
  std::string list;
  for (const TrashedObject& object : objects) {
    list.append(list.empty() ? "[" : ",[").append(canonical_text(object.name));
    list.append(",").append(std::to_string(object.size_bytes)).append(",");
    list.append(object.record.empty() ? "null" : canonical_text(object.record)).append("]");
  }
  return "[" + list + "]";
}

Result<std::vector<VersionRange>> parse_versions(std::string_view json) {
  std::vector<VersionRange> versions;
  CanonicalReader reader(json);
  for (reader.open_list(); reader.next_item();) {
    reader.open_list();
    const uint64_t first = reader.item().number(), last = reader.item().number();
    reader.close_list();
    if (first > last) break;
    versions.push_back({first, last});
  }
  if (!reader.ok() || reader.offset() != json.size()) {
    return bad_field("versions", "pairs of first and last");
  }
  return versions;
}

Result<std::vector<TrashedObject>> parse_objects(std::string_view json) {
  std::vector<TrashedObject> objects;
  CanonicalReader reader(json);
  for (reader.open_list(); reader.next_item();) {
    TrashedObject object;
    reader.open_list();
    object.name = reader.item().text();
    object.size_bytes = reader.item().number();
    if (!reader.item().take_null()) object.record = reader.text();
    reader.close_list();
    objects.push_back(std::move(object));
  }
  if (!reader.ok() || reader.offset() != json.size()) {
    return bad_field("objects", "name, bytes and record of each");
  }
  for (const TrashedObject& object : objects) {
    if (!check_object_name(object.name).ok() || !attempt_folder(object.name)) {
      return bad_field("objects", "names of objects that publishing puts");
    }
    if (!object.record.empty() && !check_object_name(object.record).ok()) {
      return bad_field("objects", "names of records");
    }
  }
  return objects;
}

}  // namespace

std::vector<VersionRange> ranges_of(const std::vector<uint64_t>& versions) {
  std::vector<VersionRange> ranges;
  for (const uint64_t version : versions) {
    if (!ranges.empty() && ranges.back().last + 1 == version) {
      ranges.back().last = version;
    } else {
      ranges.push_back({version, version});
    }
  }
  return ranges;
}

std::string serialise_trash(const Trash& trash) {
  RecordWriter record(kTrashFormat);
  record.number("created", uint64_t(trash.created));
  record.json("versions", versions_json(trash.versions));
  record.json("objects", objects_json(trash.objects));
  return std::move(record).finish({}).value();  // without a signer nothing can fail
}

Result<Trash> parse_trash(std::string_view json) {
  DW_ASSIGN_OR_RETURN(RecordReader record, RecordReader::open(json, kTrashFormat, {}));
  Trash trash;
  trash.created = record.time("created");
  DW_RETURN_IF_ERROR(Status(record.status()));
  DW_ASSIGN_OR_RETURN(trash.versions, parse_versions(record.json("versions")));
  DW_ASSIGN_OR_RETURN(trash.objects, parse_objects(record.json("objects")));
  return trash;
}

Result<std::string> put_trash(Store& store, const Trash& trash) {
  const std::string name = std::string(kTrashPrefix) + number_name(uint64_t(trash.created)) + "-" +
                           random_hex(8) + std::string(kJsonSuffix);
  DW_RETURN_IF_ERROR(store.put(name, MemoryBody(serialise_trash(trash))));
  return name;
}

Result<int64_t> store_time(Store& store) {
  const Result<int64_t> now = store.clock();
  if (now.ok() || now.status().code() == Code::kUnavailable) return now;
  DW_ASSIGN_OR_RETURN(const std::string name, put_trash(store, {}));
  const Result<ObjectInfo> info = store.stat(name);
  DW_RETURN_IF_ERROR(store.remove(name));  // one that stays is swept up by the next gc
  if (!info.ok()) return info.status();
  if (info->modified > 0) return info->modified;
  return unsupported(store.url() + ": objects of this store have no times, so none can be old");
}

Result<std::vector<ListedTrash>> list_trash(Store& store) {
  std::vector<ListedTrash> found;
  Status failure;
  DW_RETURN_IF_ERROR(list_all(store, kTrashPrefix, "", [&](const ObjectInfo& object) {
    const Result<std::string> text = store.get(object.name, kMaxTrashBytes);
    if (!text.ok() && text.status().code() == Code::kNotFound) return true;  // gone meanwhile
    if (!text.ok() && text.status().code() != Code::kCorruption) {
      failure = text.status();
      return false;
    }
    Result<Trash> trash = text.ok() ? parse_trash(*text) : text.status();
    if (!trash.ok()) trash = Status(trash.status()).at(store.url() + "/" + object.name);
    found.push_back({object, std::move(trash)});
    return true;
  }));
  DW_RETURN_IF_ERROR(std::move(failure));
  return found;
}

}  // namespace deltawire
