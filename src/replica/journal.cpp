#include "replica/journal.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/file.h"
#include "base/folder.h"
#include "base/json.h"
#include "base/sync_point.h"
#include "base/waves.h"
#include "codec/codec.h"
#include "format/checkpoint_files.h"
#include "format/delta_part.h"
#include "format/layout.h"
#include "replica/journal_redo.h"
#include "replica/local_file.h"
#include "replica/local_state.h"
#include "replica/side_files.h"
#include "tensor/text.h"

namespace deltawire {
namespace fs = std::filesystem;
namespace {

using Json = nlohmann::json;

constexpr std::string_view kJournalFormat = "journal/1";
constexpr uint64_t kMaxRecordBytes =
    4 * kMaxManifestBytes;  // it contains a manifest, with escaped quotes
constexpr std::string_view kKindNames[] = {"patch", "files", "switch"};

// False for anything but names of files in a checkpoint's folder.
bool read_names(const Json& json, const char* key, std::vector<std::string>* names) {
  if (!json.contains(key) || !json.at(key).is_array()) return false;
  for (const Json& name : json.at(key)) {
    if (!name.is_string() || !check_checkpoint_file_name(name.get<std::string>()).ok())
      return false;
    names->push_back(name.get<std::string>());
  }
  return true;
}

bool read_sides(const Json& json, std::map<std::string, std::string>* sides) {
  if (!json.contains("sides") || !json.at("sides").is_object()) return false;
  for (const auto& [name, digest] : json.at("sides").items()) {
    if (!check_checkpoint_file_name(name).ok() || !digest.is_string()) return false;
    (*sides)[name] = digest.get<std::string>();
  }
  return true;
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
  return json_text(json);
}

Result<JournalRecord> parse_journal_record(std::string_view text) {
  const Json json = parse_json(text);
  std::string format, kind, target;
  if (!json.is_object() || !read_text(json, "format", &format)) {
    return corruption("not the record of a journal");
  }
  if (format != kJournalFormat) {
    return unsupported("format " + quote(format) + "; this build reads " + quote(kJournalFormat));
  }
  JournalRecord record;
  if (!read_text(json, "kind", &kind) || !read_identity(json, &record) ||
      !read_text(json, "state", &record.state) || !read_names(json, "redo", &record.redo) ||
      !read_names(json, "files", &record.files) || !read_names(json, "remove", &record.remove) ||
      !read_number(json, "inode", &record.inode) || !read_names(json, "weights", &record.weights) ||
      !read_sides(json, &record.sides) || !json.contains("replaces") ||
      !read_stamps(json.at("replaces"), &record.replaces) || !read_text(json, "target", &target)) {
    return corruption("not the record of a journal: a field is missing or of another type");
  }
  if (kind == kKindNames[1]) {
    record.kind = JournalKind::kFiles;
  } else if (kind == kKindNames[2]) {
    record.kind = JournalKind::kSwitch;
  } else if (kind != kKindNames[0]) {
    return unsupported("journal of kind " + quote(kind));
  }
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

namespace {

// The bytes that each entry patches.
Result<std::vector<MutableBytes>> locate(const OpenPatch& patch) {
  std::vector<MutableBytes> places;
  const Checkpoint& checkpoint = patch.files->checkpoint();
  for (const Delta::Entry& item : patch.redo.entries) {
    const CheckpointTensor* tensor = checkpoint.find(item.entry.tensor);
    if (tensor == nullptr || tensor->view.dtype != item.entry.dtype ||
        tensor->view.shape != item.entry.shape) {
      return base_mismatch(item.place + ": " + checkpoint.path().string() +
                           " has no such tensor of that dtype and shape");
    }
    DW_ASSIGN_OR_RETURN(const ByteRange range, slab_range(item.entry));
    DW_ASSIGN_OR_RETURN(const MutableBytes bytes, patch.files->to_write(*tensor));
    places.push_back(bytes.subspan(range.offset, range.size));
  }
  return places;
}

std::optional<uint64_t> inode_of(const fs::path& path) {
  struct stat info;
  if (::lstat(path.c_str(), &info) != 0) return {};
  return uint64_t(info.st_ino);
}

// Moves `from` to `to`. The path never disappears if the filesystem can exchange names.
Status replace_folder(const fs::path& from, const fs::path& to) {
  if (!inode_of(to)) return rename_path(from, to);
  if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_EXCHANGE) == 0) return {};
  DW_RETURN_IF_ERROR(remove_tree(to));
  return rename_path(from, to);
}

Status point_to(const fs::path& link, const fs::path& target) {
  fs::path temporary = link;
  temporary += ".new";
  if (::unlink(temporary.c_str()) != 0 && errno != ENOENT) {
    return io_error(temporary.string() + ": cannot remove: " + std::strerror(errno));
  }
  if (::symlink(target.c_str(), temporary.c_str()) != 0) {
    return io_error(temporary.string() + ": cannot create the link: " + std::strerror(errno));
  }
  DW_SYNC_POINT("replica: new link made");
  return rename_path(temporary, link);
}

}  // namespace

Result<Checkpoint> open_own_checkpoint(const fs::path& folder,
                                       const std::vector<std::string>& weights) {
  // A folder is opened through its index; without an index there is a single file.
  return Checkpoint::open(weights.size() == 1 ? folder / weights[0] : folder);
}

Result<Delta> open_redo(const fs::path& journal, const JournalRecord& record, ThreadPool* pool) {
  std::vector<PartFile> parts;
  for (const std::string& name : record.redo) {
    const fs::path path = journal / "redo" / name;
    parts.push_back({path, path.string()});
  }
  return open_delta_parts(parts, pool);
}

Result<OpenPatch> open_patch(const LocalLayout& layout, const JournalRecord& record,
                             ThreadPool* pool) {
  DW_ASSIGN_OR_RETURN(Delta redo, open_redo(layout.journal(), record, pool));
  DW_ASSIGN_OR_RETURN(Checkpoint checkpoint, open_own_checkpoint(layout.root, record.weights));
  return OpenPatch{std::make_unique<PatchedFiles>(std::move(checkpoint)), std::move(redo)};
}

Result<FileStamps> carry_out_patch(const OpenPatch& patch, ThreadPool* pool) {
  DW_ASSIGN_OR_RETURN(const std::vector<MutableBytes> places, locate(patch));
  DW_SYNC_POINT("replica: patch begins");
  std::vector<uint64_t> sizes;
  for (const MutableBytes place : places) sizes.push_back(place.size());
  Waves waves(std::move(sizes), Waves::Inside::kShared, pool, {});
  DW_RETURN_IF_ERROR(waves.run([&](size_t i, ThreadPool* inner) -> Status {
    const Delta::Entry& item = patch.redo.entries[i];
    if (touches_most_pages(item.entry.num_changed, places[i].size())) map_all(places[i], inner);
    DW_RETURN_IF_ERROR(find_codec(item.entry.codec)
                           ->apply(item.entry.layout(), item.payload, places[i], inner)
                           .at(item.place));
    DW_SYNC_POINT("replica: tensor patched");
    return {};
  }));
  DW_RETURN_IF_ERROR(patch.files->check_whole());
  DW_ASSIGN_OR_RETURN(FileStamps stamps, patch.files->mark());
  DW_SYNC_POINT("replica: patched, not on disk");
  return stamps;
}

Status carry_out_files(const LocalLayout& layout, const JournalRecord& record,
                       std::vector<std::string>* set_aside) {
  if (record.files.empty() && record.remove.empty()) return {};
  const auto put_aside = [&](const std::string& name) {
    if (is_weights_file(name)) return Status();
    return put_aside_unless(layout, layout.root, name, record.replaces, set_aside);
  };
  for (const std::string& name : record.files) {
    const fs::path from = layout.journal() / "files" / name;
    if (!inode_of(from)) continue;  // done by a process that died later
    DW_RETURN_IF_ERROR(put_aside(name));
    DW_RETURN_IF_ERROR(rename_path(from, layout.root / name));
    DW_SYNC_POINT("replica: file replaced");
  }
  for (const std::string& name : record.remove) {
    DW_RETURN_IF_ERROR(put_aside(name));
    DW_RETURN_IF_ERROR(remove_tree(layout.root / name));
    DW_SYNC_POINT("replica: old file removed");
  }
  DW_RETURN_IF_ERROR(sync_directory(layout.root));
  DW_SYNC_POINT("replica: files replaced, on disk");
  return {};
}

// Before a folder is replaced: moves files of others out of it.
Status keep_files_of_others(const LocalLayout& layout, const fs::path& folder,
                            const JournalRecord& record, std::vector<std::string>* set_aside) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    names.push_back(it->path().filename().string());
  }
  for (const std::string& name : names) {
    if (is_weights_file(name)) continue;
    DW_RETURN_IF_ERROR(put_aside_unless(layout, folder, name, record.replaces, set_aside));
  }
  return {};
}

Status carry_out_switch(const LocalLayout& layout, const JournalRecord& record,
                        std::vector<std::string>* set_aside) {
  const fs::path from = layout.journal() / "files", to = layout.version(record.version);
  if (inode_of(to) != record.inode) {
    if (inode_of(from) != record.inode) {
      return corruption(from.string() + ": the new version's folder is missing");
    }
    DW_RETURN_IF_ERROR(keep_files_of_others(layout, to, record, set_aside));
    DW_RETURN_IF_ERROR(replace_folder(from, to));
    DW_SYNC_POINT("replica: version's folder in place");
    DW_RETURN_IF_ERROR(sync_directory(layout.root));
  }
  DW_RETURN_IF_ERROR(point_to(layout.current(), to.filename()));
  DW_SYNC_POINT("replica: link switched");
  return sync_directory(layout.root);
}

}  // namespace deltawire
