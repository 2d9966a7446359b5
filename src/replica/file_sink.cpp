#include "replica/file_sink.h"

#include <set>

#include "base/file.h"
#include "base/folder.h"
#include "base/guard.h"
#include "base/sync_point.h"
#include "chain/named_objects.h"
#include "format/checkpoint_files.h"
#include "replica/build.h"
#include "replica/journal.h"
#include "replica/local_file.h"

namespace deltawire {
namespace fs = std::filesystem;

fs::path FileSink::held_folder() const {
  return replica_.layout.checkpoint(replica_.state->copy_on_write, replica_.state->replica.version);
}

// Where side files that the version needs may already be.
fs::path FileSink::sides_folder() const {
  if (!replica_.options.copy_on_write) return replica_.layout.root;
  return replica_.state ? held_folder() : replica_.layout.version(manifest().version);
}

Status FileSink::begin() {
  DW_RETURN_IF_ERROR(remove_tree(replica_.layout.work()));
  return remove_tree(replica_.layout.new_journal());
}

Status FileSink::look_at_plan() {
  const std::map<std::string, HeldSide> none;
  DW_ASSIGN_OR_RETURN(sides_,
                      plan_side_files(sides_folder(), replica_.state ? replica_.state->sides : none,
                                      manifest().files, replica_.options.verify_all));
  for (const SideFile& file : sides_.fetch) attempt_.report.bytes += file.size_bytes;
  attempt_.report.num_side_files = sides_.fetch.size() + sides_.remove.size();
  if (attempt_.goal.from_nothing) return {};
  // A file that cannot be examined is reported as missing when the checkpoint is opened.
  for (const auto& [name, left] : replica_.state->weights) {
    const Result<FileStamp> now = stamp_of(held_folder() / name);
    if (now.ok()) stamps_[name] = *now;
  }
  verify_all_ = replica_.options.verify_all || stamps_ != replica_.state->weights;
  return {};
}

uint64_t FileSink::local_bytes() const {
  uint64_t bytes = 0;
  if (attempt_.goal.from_nothing) return bytes;
  for (const auto& [name, stamp] : replica_.state->weights) bytes += stamp.size_bytes;
  return bytes;
}

Result<Checkpoint> FileSink::open_checkpoint() const {
  Result<Checkpoint> opened = open_own_checkpoint(held_folder(), replica_.state->weight_names());
  if (opened.ok() || opened.status().code() == Code::kIo) return opened;
  return base_mismatch(opened.status().message());  // a file is missing, truncated or different
}

// Checks that the files did not change while they were read.
Status FileSink::check_unedited() const {
  const auto edited = find_edited(held_folder(), stamps_);
  return edited ? base_mismatch(*edited + ": changed while it was read") : Status();
}

BuildContext FileSink::context(const Target& target, const Checkpoint& source,
                               std::span<const TensorSteps> steps, bool check_untouched) const {
  BuildContext build{target,          source,         steps,
                     check_untouched, &replica_.pool, attempt_.progress.of_building()};
  build.memory = memory();
  build.ahead = &replica_.ahead;
  return build;
}

// The replica is already at the version. Verifies the weights if requested.
Status FileSink::check_held() {
  if (!verify_all_) return {};
  attempt_.clock.begin("verify");
  DW_ASSIGN_OR_RETURN(const Checkpoint held, open_checkpoint());
  DW_ASSIGN_OR_RETURN(const std::vector<TensorSteps> steps,
                      collect_steps(held, {}, attempt_.plan.schema));
  const Target target = target_of(attempt_.plan);
  DW_RETURN_IF_ERROR(build_in_place(context(target, held, steps, true)));
  DW_RETURN_IF_ERROR(check_unedited());
  verify_all_ = false;  // done
  LocalState next = *replica_.state;
  next.weights = stamps_;
  return replica_.save(std::move(next));
}

// The replica is at the version, but a side file differs.
Status FileSink::say_defect() {
  if (!replica_.options.repair) return base_mismatch(sides_.defect);
  note_repair(replica_.layout.root.string(), sides_.defect, &attempt_.report);
  return {};
}

// The replica is at the version, but `current` points elsewhere. This step only moves the link.
Status FileSink::move_link() {
  record_.kind = JournalKind::kSwitch;
  record_.weights = replica_.state->weight_names();
  DW_RETURN_IF_ERROR(make_folder(replica_.layout.new_journal()));
  return write_journal(held_folder());
}

Result<bool> FileSink::is_there() {
  DW_RETURN_IF_ERROR(check_held());
  if (!sides_.all_there()) {
    DW_RETURN_IF_ERROR(say_defect());
    return false;
  }
  if (replica_.relink) {
    DW_RETURN_IF_ERROR(move_link());
  } else if (sides_.keep != replica_.state->sides) {
    LocalState next = *replica_.state;
    next.sides = sides_.keep;
    DW_RETURN_IF_ERROR(replica_.save(std::move(next)));
  }
  return true;
}

Result<bool> FileSink::take_file(const PartRef& part, const fs::path& folder) {
  const auto found = replica_.at_hand.find(part.name);
  if (found == replica_.at_hand.end()) return false;
  DW_ASSIGN_OR_RETURN(const std::string name, checkpoint_file_of(part));
  DW_RETURN_IF_ERROR(write_body(folder / plain_file_name(name), *found->second, &replica_.pool));
  return true;
}

Result<std::vector<FetchItem>> FileSink::items_beside() {
  std::vector<FetchItem> items;
  DW_RETURN_IF_ERROR(make_folder(side_file(0).parent_path()));
  for (size_t i = 0; i < sides_.fetch.size(); ++i) {
    items.push_back({side_object(sides_.fetch[i]), side_file(i)});
  }
  return items;
}

// Patches in place unless tensors were added, removed or reshaped.
Result<bool> FileSink::open_held() {
  DW_ASSIGN_OR_RETURN(held_, open_checkpoint());
  if (replica_.options.copy_on_write) return false;
  DW_ASSIGN_OR_RETURN(const PlannedLayout layout, plan_layout(*held_, attempt_.plan.schema));
  if (layout.relaid) return false;
  DW_RETURN_IF_ERROR(begin_redo());
  return true;
}

Status FileSink::begin_redo() {
  DW_RETURN_IF_ERROR(make_folder(replica_.layout.new_journal()));
  DW_RETURN_IF_ERROR(make_folder(redo_folder()));
  DeltaInfo info;
  DW_ASSIGN_OR_RETURN(info.base,
                      parse_digest(DigestKind::kXxh3_128, replica_.state->replica.state));
  info.target = manifest().state;
  redo_.emplace(redo_folder(), info, memory().slab_bytes);
  files_ = std::make_unique<PatchedFiles>(*held_);
  record_.kind = JournalKind::kPatch;
  record_.weights = replica_.state->weight_names();
  return {};
}

Status FileSink::stage(const ReadySteps& ready) {
  const Target target = target_of(attempt_.plan);
  const BuildContext build = context(target, *held_, ready.steps, ready.last && verify_all_);
  DW_RETURN_IF_ERROR(build_redo(build, files_.get(), work_folder(), &*redo_));
  if (!ready.last) return {};
  DW_ASSIGN_OR_RETURN(record_.redo, redo_->finish());
  attempt_.report.num_changed = redo_->num_changed();
  return {};
}

Status FileSink::build(FetchedVersion version) {
  DW_RETURN_IF_ERROR(make_folder(replica_.layout.new_journal()));
  const bool from_whole = version.whole.has_value();
  const bool apart = replica_.options.copy_on_write.has_value();
  const Target target = target_of(attempt_.plan);
  const BuildContext build = context(target, from_whole ? *version.whole : *held_, version.steps,
                                     from_whole || verify_all_);
  for (const TensorSteps& tensor : version.steps) {
    for (const Delta::Entry* item : tensor.entries) {
      attempt_.report.num_changed += item->entry.num_changed;
    }
  }
  NewFiles files{files_folder(), {}, {}, apart};
  if (replica_.state) {
    files.held = held_folder();
    files.weights = replica_.state->weights;
  }
  if (from_whole) {
    DW_ASSIGN_OR_RETURN(record_,
                        build_from_whole(build, attempt_.plan.hops[0], version.folder, files));
    return {};
  }
  DW_ASSIGN_OR_RETURN(record_, build_from_held(build, version.deltas, files));
  return apart ? check_unedited() : Status();  // unchanged tensors were copied
}

// The end of a catch-up in a folder: the journal is complete and on disk, and still has its
// temporary name.

// New side files become part of the step. A version's own folder gets all of them.
Status FileSink::place_sides() {
  const bool apart = record_.kind == JournalKind::kSwitch;
  record_.replaces = sides_.ours;
  // An existing folder may be this version's, from an earlier step.
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

// Stamps of the weights that the step brings.
Result<FileStamps> FileSink::stamp_written(const fs::path& files) const {
  if (files != files_folder()) return stamps_;  // only the link moves
  std::vector<std::string> names = record_.weights;
  if (record_.kind != JournalKind::kSwitch) {
    const std::set<std::string> brought(record_.files.begin(), record_.files.end());
    std::erase_if(names, [&](const std::string& name) { return !brought.contains(name); });
  }
  return stamp_files(files, names);
}

// `files`: the folder with the new files of the step.
Status FileSink::write_journal(const fs::path& files) {
  attempt_.clock.begin("journal");
  const fs::path folder = replica_.layout.new_journal();
  static_cast<Identity&>(record_) = attempt_.plan.target.identity();
  record_.state = manifest().state.hex();
  record_.target = manifest();
  for (const SideFile& file : manifest().files) record_.sides[file.name] = file.sha256.hex();
  ReplicaCore::Pending pending;
  if (record_.kind != JournalKind::kPatch || !record_.files.empty()) {
    std::vector<std::string> names = record_.weights;
    for (const auto& [name, digest] : record_.sides) names.push_back(name);
    DW_RETURN_IF_ERROR(sync_files(files, names));
    DW_SYNC_POINT("replica: new files on disk");
    DW_ASSIGN_OR_RETURN(const FileStamp stamp, stamp_of(files));
    record_.inode = stamp.inode;
    DW_ASSIGN_OR_RETURN(pending.written_files, stamp_written(files));
  }
  DW_ASSIGN_OR_RETURN(const std::string text, serialise_journal_record(record_));
  DW_RETURN_IF_ERROR(write_text_file(folder / kJournalRecordName, text));
  DW_RETURN_IF_ERROR(sync_directory(folder));
  DW_SYNC_POINT("replica: journal prepared");
  if (record_.kind == JournalKind::kPatch) {
    DW_ASSIGN_OR_RETURN(Delta redo, open_redo(folder, record_, &replica_.pool));
    pending.patch = OpenPatch{std::move(files_), std::move(redo)};
  }
  // Files that stay in place.
  for (const std::string& name : record_.weights) {
    const auto held = stamps_.find(name);
    if (!from_whole(attempt_.plan) && held != stamps_.end() &&
        !pending.written_files.contains(name)) {
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
  // The journal has everything it needs; the parts can go.
  return remove_tree(work_folder());
}

}  // namespace deltawire
