// The end of a catch-up in a folder: the journal is whole and on disk, and lacks only its name.
#include <set>

#include "base/file.h"
#include "base/folder.h"
#include "base/guard.h"
#include "base/sync_point.h"
#include "replica/file_sink.h"
#include "replica/local_file.h"

namespace deltawire {
namespace fs = std::filesystem;

// New files beside the weights become part of the step; a version's own folder gets all of them.
Status FileSink::place_sides() {
  const bool apart = record_.kind == JournalKind::kSwitch;
  for (const SideFile& file : manifest().files) record_.sides[file.name] = file.sha256.hex();
  record_.replaces = sides_.ours;
  // A folder that is there already may be this version's from before.
  const fs::path before = replica_.layout.version(manifest().version);
  if (apart && before != sides_folder()) {
    DW_ASSIGN_OR_RETURN(SidePlan old, plan_side_files(before, {}, manifest().files, true));
    record_.replaces = std::move(old.ours);
  }
  if (!sides_.fetch.empty() || apart) DW_RETURN_IF_ERROR(make_folder(files_folder()));
  for (size_t i = 0; i < sides_.fetch.size(); ++i) {
    const std::string& name = sides_.fetch[i].name;
    DW_RETURN_IF_ERROR(rename_path(side_file(i), files_folder() / name));
    record_.files.push_back(name);
  }
  if (!apart) {
    record_.remove.insert(record_.remove.end(), sides_.remove.begin(), sides_.remove.end());
    return {};
  }
  for (const auto& [name, side] : sides_.keep) {
    DW_RETURN_IF_ERROR(clone_file(sides_folder() / name, files_folder() / name));
  }
  return {};
}

Status FileSink::sync_files(const fs::path& folder, const std::vector<std::string>& names) {
  DW_RETURN_IF_ERROR(parallel_try("syncing files", &replica_.pool, names.size(),
                                  [&](size_t i, unsigned) -> Status {
                                    std::error_code error;
                                    const fs::path file = folder / names[i];
                                    return fs::exists(file, error) ? sync_file(file) : Status();
                                  }));
  return sync_directory(folder);
}

// Of the weights that the step brings.
Result<FileStamps> FileSink::stamp_made(const fs::path& files) const {
  if (files != files_folder()) return stamps_;  // only a link moves
  std::vector<std::string> names = record_.weights;
  if (record_.kind != JournalKind::kSwitch) {
    const std::set<std::string> brought(record_.files.begin(), record_.files.end());
    std::erase_if(names, [&](const std::string& name) { return !brought.contains(name); });
  }
  return stamp_files(files, names);
}

void FileSink::name_version(JournalRecord* record) const {
  record->run = manifest().run;
  record->version = manifest().version;
  record->manifest = attempt_.route.record.digest.hex();
  record->state = manifest().state.hex();
  record->target = manifest();
}

// `files` are those that the step brings.
Status FileSink::write_journal(const fs::path& files) {
  attempt_.clock.begin("journal");
  const fs::path folder = replica_.layout.new_journal();
  name_version(&record_);
  ReplicaCore::Pending pending;
  if (record_.kind != JournalKind::kPatch || !record_.files.empty()) {
    std::vector<std::string> names = record_.weights;
    for (const auto& [name, digest] : record_.sides) names.push_back(name);
    DW_RETURN_IF_ERROR(sync_files(files, names));
    DW_SYNC_POINT("replica: new files on disk");
    DW_ASSIGN_OR_RETURN(const FileStamp stamp, stamp_of(files));
    record_.inode = stamp.inode;
    DW_ASSIGN_OR_RETURN(pending.made, stamp_made(files));
  }
  DW_ASSIGN_OR_RETURN(const std::string text, serialise_journal_record(record_));
  DW_RETURN_IF_ERROR(write_text_file(folder / kJournalRecordName, text));
  DW_RETURN_IF_ERROR(sync_directory(folder));
  DW_SYNC_POINT("replica: journal prepared");
  if (record_.kind == JournalKind::kPatch) {
    DW_ASSIGN_OR_RETURN(pending.patch, open_patch(replica_.layout, folder, record_));
  }
  // Files that stay where they are.
  for (const std::string& name : record_.weights) {
    const auto held = stamps_.find(name);
    if (!attempt_.route.from_whole && held != stamps_.end() && !pending.made.contains(name)) {
      pending.held.insert(*held);
    }
  }
  pending.record = std::move(record_);
  replica_.pending.emplace(std::move(pending));
  return {};
}

Status FileSink::finish() {
  if (record_.kind == JournalKind::kPatch) DW_RETURN_IF_ERROR(sync_directory(redo_folder()));
  DW_RETURN_IF_ERROR(place_sides());
  DW_RETURN_IF_ERROR(write_journal(files_folder()));
  // Parts have served; what the journal needs is in the journal.
  return remove_tree(work_folder());
}

}  // namespace deltawire
