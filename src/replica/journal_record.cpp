#include "replica/journal_record.h"

#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/json.h"
#include "format/checkpoint_files.h"
#include "format/delta_part.h"
#include "replica/stamp_json.h"
#include "tensor/text.h"

namespace deltawire {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kJournalFormat = "journal/1";
constexpr uint64_t kMaxRecordBytes =
    4 * kMaxManifestBytes;  // one is in it, with its quotes escaped
constexpr std::string_view kKindNames[] = {"patch", "files", "switch"};

Result<std::vector<std::string>> read_names(const Json& json, const char* key) {
  std::vector<std::string> names;
  if (!json.contains(key) || !json.at(key).is_array()) {
    return corruption(quote(key) + ": expected a list of names");
  }
  for (const Json& name : json.at(key)) {
    if (!name.is_string()) return corruption(quote(key) + ": expected a list of names");
    names.push_back(name.get<std::string>());
    DW_RETURN_IF_ERROR(check_checkpoint_file_name(names.back()));
  }
  return names;
}

Result<uint64_t> read_number(const Json& json, const char* key) {
  if (!json.contains(key) || !json.at(key).is_number_unsigned()) {
    return corruption(quote(key) + ": expected a number");
  }
  return json.at(key).get<uint64_t>();
}

Result<std::string> read_text(const Json& json, const char* key) {
  if (!json.contains(key) || !json.at(key).is_string()) {
    return corruption(quote(key) + ": expected a text");
  }
  return json.at(key).get<std::string>();
}

}  // namespace

Result<std::string> serialise_journal_record(const JournalRecord& record) {
  DW_ASSIGN_OR_RETURN(const std::string target, serialise_manifest(record.target, {}));
  Json replaces = Json::object();
  for (const auto& [name, stamp] : record.replaces) replaces[name] = stamp_json(stamp);
  Json json{{"format", kJournalFormat},
            {"kind", kKindNames[size_t(record.kind)]},
            {"run", record.run},
            {"version", record.version},
            {"manifest", record.manifest},
            {"state", record.state},
            {"redo", record.redo},
            {"files", record.files},
            {"remove", record.remove},
            {"inode", record.inode},
            {"weights", record.weights},
            {"sides", record.sides},
            {"replaces", std::move(replaces)},
            {"target", target}};
  if (record.from) json["from"] = identity_json(*record.from);
  return json_text(json);
}

Result<JournalRecord> parse_journal_record(std::string_view text) {
  const Json json = parse_json(text);
  if (!json.is_object()) return corruption("not the record of a journal");
  DW_ASSIGN_OR_RETURN(const std::string format, read_text(json, "format"));
  if (format != kJournalFormat) {
    return unsupported("format " + quote(format) + "; this build reads " + quote(kJournalFormat));
  }
  JournalRecord record;
  DW_ASSIGN_OR_RETURN(const std::string kind, read_text(json, "kind"));
  if (kind == kKindNames[1]) {
    record.kind = JournalKind::kFiles;
  } else if (kind == kKindNames[2]) {
    record.kind = JournalKind::kSwitch;
  } else if (kind != kKindNames[0]) {
    return unsupported("journal of kind " + quote(kind));
  }
  if (!read_identity(json, &record) ||
      (json.contains("from") && !read_identity(json.at("from"), &record.from.emplace()))) {
    return corruption("not the record of a journal: run, version and manifest are missing");
  }
  DW_ASSIGN_OR_RETURN(record.state, read_text(json, "state"));
  DW_ASSIGN_OR_RETURN(record.redo, read_names(json, "redo"));
  DW_ASSIGN_OR_RETURN(record.files, read_names(json, "files"));
  DW_ASSIGN_OR_RETURN(record.remove, read_names(json, "remove"));
  DW_ASSIGN_OR_RETURN(record.inode, read_number(json, "inode"));
  DW_ASSIGN_OR_RETURN(record.weights, read_names(json, "weights"));
  if (!json.contains("sides") || !json.at("sides").is_object() || !json.contains("replaces") ||
      !json.at("replaces").is_object()) {
    return corruption("\"sides\", \"replaces\": expected files by name");
  }
  for (const auto& [name, digest] : json.at("sides").items()) {
    DW_RETURN_IF_ERROR(check_checkpoint_file_name(name));
    if (!digest.is_string()) return corruption(quote(name) + ": expected a digest");
    record.sides[name] = digest.get<std::string>();
  }
  for (const auto& [name, stamp] : json.at("replaces").items()) {
    if (!read_stamp(stamp, &record.replaces[name])) {
      return corruption(quote(name) + ": expected how it was left");
    }
  }
  DW_ASSIGN_OR_RETURN(const std::string target, read_text(json, "target"));
  DW_ASSIGN_OR_RETURN(record.target, parse_manifest(target, {}));
  if (record.target.version != record.version || record.target.state.hex() != record.state) {
    return corruption(quote("target") + ": is not the version that the journal leads to");
  }
  return record;
}

Result<JournalRecord> read_journal_record(const std::filesystem::path& journal) {
  const std::filesystem::path file = journal / kJournalRecordName;
  DW_ASSIGN_OR_RETURN(const std::string text, read_text_file(file, kMaxRecordBytes));
  Result<JournalRecord> record = parse_journal_record(text);
  if (!record.ok()) return std::move(record).status().at(file.string());
  return record;
}

}  // namespace deltawire
