#include "bridge/slime/journal.h"

#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/folder.h"
#include "base/json.h"
#include "base/sync_point.h"
#include "delta/delta_reader.h"
#include "format/checkpoint_files.h"
#include "replica/stamp_json.h"
#include "tensor/sharded_index.h"

namespace deltawire {
namespace fs = std::filesystem;
namespace {

using Json = nlohmann::json;

constexpr uint64_t kMaxSlimeJournalBytes = 256 << 20;

// Names that a journal of ours may have: they lead nowhere else.
bool read_file_names(const Json& json, std::vector<std::string>* names) {
  if (!json.is_array()) return false;
  for (const Json& name : json) {
    if (!name.is_string()) return false;
    names->push_back(name.get<std::string>());
    if (!check_checkpoint_file_name(names->back()).ok()) return false;
  }
  return true;
}

bool read_stamps(const Json& json, FileStamps* stamps) {
  if (!json.is_object()) return false;
  for (const auto& [name, stamp] : json.items()) {
    if (!check_checkpoint_file_name(name).ok() || !read_stamp(stamp, &(*stamps)[name])) {
      return false;
    }
  }
  return true;
}

std::string slime_journal_text(const SlimeJournal& journal) {
  Json json = {{"next", slime_record_text(journal.next)},
               {"redo", journal.redo},
               {"files", journal.files},
               {"remove", journal.remove},
               {"stamps", Json::object()}};
  json["from"] = journal.from ? Json(*journal.from) : Json();
  for (const auto& [name, stamp] : journal.stamps) json["stamps"][name] = stamp_json(stamp);
  return json_text(json, {.indent = 1}) + "\n";
}

std::optional<SlimeJournal> parse_slime_journal(std::string_view text) {
  const Json json = parse_json(text);
  SlimeJournal journal;
  if (!json.is_object() || !json.value("next", Json()).is_string() ||
      !read_file_names(json.value("redo", Json()), &journal.redo) ||
      !read_file_names(json.value("files", Json()), &journal.files) ||
      !read_file_names(json.value("remove", Json()), &journal.remove) ||
      !read_stamps(json.value("stamps", Json()), &journal.stamps)) {
    return {};
  }
  if (const Json from = json.value("from", Json()); from.is_number_unsigned()) {
    journal.from = from.get<uint64_t>();
  }
  auto next = parse_slime_record(json["next"].get_ref<const std::string&>());
  if (!next) return {};
  journal.next = std::move(*next);
  return journal;
}

Status replace_slime_files(const SlimeLocal& local, const SlimeJournal& journal) {
  if (journal.files.empty() && journal.remove.empty()) return {};
  std::error_code error;
  for (const std::string& name : journal.files) {
    const fs::path from = local.journal() / "files" / name;
    if (!fs::exists(from, error)) continue;  // done by a process that died later
    DW_RETURN_IF_ERROR(rename_path(from, local.root / name));
    DW_SYNC_POINT("slime: file replaced");
  }
  for (const std::string& name : journal.remove) {
    DW_RETURN_IF_ERROR(remove_tree(local.root / name));
    DW_SYNC_POINT("slime: old file removed");
  }
  return sync_directory(local.root);
}

Result<OpenPatch> open_slime_patch(const SlimeLocal& local, const SlimeJournal& journal) {
  std::vector<PartFile> parts;
  for (const std::string& name : journal.redo) {
    const fs::path path = local.journal() / "redo" / name;
    parts.push_back({path, path.string()});
  }
  DW_ASSIGN_OR_RETURN(Delta redo, open_delta_parts(parts));
  DW_ASSIGN_OR_RETURN(Checkpoint checkpoint, Checkpoint::open(local.root));
  return OpenPatch{std::move(checkpoint), std::move(redo)};
}

}  // namespace

std::vector<std::string> weights_of(const Checkpoint& checkpoint) {
  std::vector<std::string> names;
  for (const CheckpointFile& file : checkpoint.files()) names.push_back(file.name);
  if (checkpoint.has_index()) names.emplace_back(kIndexFileName);
  return names;
}

Status clear_slime_work(const SlimeLocal& local) {
  DW_RETURN_IF_ERROR(remove_tree(local.new_journal()));
  return remove_tree(local.old_journal());
}

Result<std::optional<SlimeJournal>> read_slime_journal(const SlimeLocal& local) {
  std::error_code error;
  if (!fs::exists(local.journal(), error)) return std::optional<SlimeJournal>();
  const fs::path file = local.journal() / "record.json";
  DW_ASSIGN_OR_RETURN(const std::string text, read_text_file(file, kMaxSlimeJournalBytes));
  std::optional<SlimeJournal> journal = parse_slime_journal(text);
  if (!journal) {
    return corruption(file.string() +
                      ": no journal of this build; remove the local folder, and pull again");
  }
  return journal;
}

std::optional<std::string> find_taken_over(const SlimeLocal& local, const SlimeJournal& journal) {
  const bool replaces = journal.redo.empty();
  std::error_code error;
  for (const auto& [name, left] : journal.stamps) {
    if (replaces && fs::exists(local.journal() / "files" / name, error)) continue;
    const Result<FileStamp> now = stamp_of(local.root / name);
    if (!now.ok() || now->inode != left.inode || now->size_bytes != left.size_bytes ||
        (replaces && now->modified_ns != left.modified_ns)) {
      return (local.root / name).string() + ": not the file that the journal was made for";
    }
  }
  if (replaces) return {};
  const auto version = read_slime_version(local);
  if (!version.ok()) return version.status().message();
  if (!*version || **version == journal.next.version) return {};
  if (*version == journal.from) return find_edited(local.root, journal.stamps);
  return local.root.string() + ": is at version " + std::to_string(**version) +
         " now, and the journal leads to " + std::to_string(journal.next.version);
}

Status commit_slime_journal(const SlimeLocal& local, const SlimeJournal& journal) {
  DW_RETURN_IF_ERROR(
      write_text_file(local.new_journal() / "record.json", slime_journal_text(journal)));
  DW_RETURN_IF_ERROR(sync_directory(local.new_journal()));
  DW_SYNC_POINT("slime: journal prepared");
  DW_RETURN_IF_ERROR(rename_path(local.new_journal(), local.journal()));
  DW_RETURN_IF_ERROR(sync_directory(local.own()));
  DW_SYNC_POINT("slime: journal committed");
  return {};
}

Result<SlimeStep> SlimeStep::carry_out(const SlimeLocal& local, const SlimeJournal& journal,
                                       ThreadPool* pool) {
  SlimeStep step(local);
  DW_RETURN_IF_ERROR(remove_slime_version(local));
  DW_SYNC_POINT("slime: version taken back");
  DW_RETURN_IF_ERROR(replace_slime_files(local, journal));
  FileStamps patched;
  if (!journal.redo.empty()) {
    DW_ASSIGN_OR_RETURN(const OpenPatch patch, open_slime_patch(local, journal));
    DW_ASSIGN_OR_RETURN(step.patched_, carry_out_patch(patch, pool));
    patched = step.patched_->stamps();
  }
  DW_ASSIGN_OR_RETURN(const Checkpoint now, Checkpoint::open(local.root));
  SlimeRecord record = journal.next;
  DW_ASSIGN_OR_RETURN(record.files, stamp_files(local.root, weights_of(now)));
  for (const auto& [name, stamp] : patched) record.files[name] = stamp;
  DW_RETURN_IF_ERROR(write_slime_record(local, record));
  DW_SYNC_POINT("slime: record written");
  DW_RETURN_IF_ERROR(write_slime_version(local, record.version));
  DW_SYNC_POINT("slime: version written");
  return step;
}

Status SlimeStep::settle(ThreadPool* pool) {
  if (patched_) DW_RETURN_IF_ERROR(patched_->sync(pool));
  patched_.reset();
  // Away with one rename: a journal that has lost some of its files would be carried out by nobody.
  DW_RETURN_IF_ERROR(rename_path(local_.journal(), local_.old_journal()));
  DW_SYNC_POINT("slime: journal done");
  return remove_tree(local_.old_journal());
}

}  // namespace deltawire
