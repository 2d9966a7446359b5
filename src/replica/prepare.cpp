// From a version's number to a journal that leads there: plan, fetch, decode, check. Nothing of the
// checkpoint is touched.
#include <algorithm>
#include <set>

#include "base/file.h"
#include "base/guard.h"
#include "base/log.h"
#include "base/sync_point.h"
#include "chain/side_objects.h"
#include "format/checkpoint_files.h"
#include "replica/build.h"
#include "replica/eager_parts.h"
#include "replica/forward.h"
#include "replica/hop_files.h"
#include "replica/impl.h"
#include "replica/journal_redo.h"
#include "replica/layout.h"
#include "replica/limits.h"
#include "replica/local_file.h"
#include "replica/lost_state.h"
#include "replica/route.h"
#include "replica/side_files.h"
#include "tensor/sharded_index.h"
#include "transfer/fetch.h"

namespace deltawire {
namespace fs = std::filesystem;
namespace {

// One attempt to get from what is held, or from nothing, to a version.
class Attempt {
 public:
  // `avoid`: parts that are not to be used.
  Attempt(ReplicaCore& replica, const std::set<std::string>& avoid, PullReport* report,
          PhaseClock* clock)
      : replica_(replica), avoid_(avoid), report_(*report), clock_(*clock) {}

  // Leaves a pending step, or none when there is nothing to do. BaseMismatch: what is held is not
  // what it should be.
  Status run(const AttemptGoal& goal);
  // The part in the store that is damaged or gone, when that is what run() failed with.
  const std::optional<std::string>& bad_part() const { return bad_part_; }

 private:
  Target target() const { return route_.target(); }
  HopFiles parts() const { return {replica_.layout.work(), replica_.store->url(), route_.hops}; }
  fs::path side_file(size_t number) const {
    return replica_.layout.work() / "sides" / std::to_string(number);
  }
  fs::path files_folder() const { return replica_.layout.new_journal() / "files"; }
  fs::path held_folder() const {
    return replica_.layout.checkpoint(replica_.state->copy_on_write,
                                      replica_.state->replica.version);
  }
  Progress progress_of(uint64_t done_before) const;

  Status make_plan(const AttemptGoal& goal);
  fs::path sides_folder() const;
  Status plan_sides();
  Result<std::vector<FetchItem>> items_to_fetch() const;
  Status check_held();
  Status check_unedited() const;
  Status move_link();
  Status mend_sides();
  Result<Checkpoint> open_held() const;
  Status note_bad_part(Fetch* fetch, Status status);
  Status fetch();
  Status build();
  Status fetch_and_patch(const Checkpoint& held);
  Status build_steps(const Checkpoint& held, std::span<const TensorSteps> steps, bool untouched_too,
                     uint64_t fetched, RedoWriter* redo);
  Status build_from_held(const BuildContext& build, const PlannedLayout& layout);
  Status build_from_whole(const BuildContext& build, const PlannedLayout& layout);
  Status keep_held_files(const std::set<std::string>& gone);
  Status place_sides(JournalRecord* record);
  Status sync_files(const fs::path& folder, const std::vector<std::string>& names);
  Result<FileStamps> stamp_made(const JournalRecord& record, const fs::path& files) const;
  Status finish(JournalRecord record);
  Status finish(JournalRecord record, const fs::path& files);

  ReplicaCore& replica_;
  const std::set<std::string>& avoid_;
  std::optional<std::string> bad_part_;
  PullReport& report_;
  PhaseClock& clock_;
  Route route_;
  bool verify_all_ = false;
  SidePlan sides_;             // files beside the weights
  FileStamps stamps_;          // of held files, before they are read
  std::vector<Delta> opened_;  // of the hops that are deltas
  uint64_t built_bytes_ = 0;   // of weights, for the progress
};

Progress Attempt::progress_of(uint64_t done_before) const {
  if (!replica_.options.progress) return {};
  const uint64_t total = report_.bytes + report_.weights_bytes;
  return [this, done_before, total](uint64_t done, uint64_t) {
    return replica_.options.progress(std::min(total, done_before + done), total);
  };
}

Status Attempt::make_plan(const AttemptGoal& goal) {
  std::optional<Held> held;
  if (!goal.from_nothing) {
    DW_ASSIGN_OR_RETURN(held, replica_.held());
  }
  DW_ASSIGN_OR_RETURN(route_,
                      plan_route(*replica_.chain, held, goal, replica_.seen, avoid_, &report_));
  return {};
}

Result<Checkpoint> Attempt::open_held() const {
  std::vector<std::string> weights;
  for (const auto& [name, stamp] : replica_.state->weights) weights.push_back(name);
  Result<Checkpoint> opened = open_own_checkpoint(held_folder(), weights);
  if (opened.ok() || opened.status().code() == Code::kIo) return opened;
  return base_mismatch(opened.status().message());  // a file is missing, cut short or another
}

// What was read is what is there.
Status Attempt::check_unedited() const {
  const auto edited = find_edited(held_folder(), stamps_);
  return edited ? base_mismatch(*edited + ": it changes while it is read") : Status();
}

// Already at the version, but `current` points elsewhere: a step that moves nothing but the link.
Status Attempt::move_link() {
  JournalRecord record;
  record.kind = JournalKind::kSwitch;
  for (const SideFile& file : route_.record.manifest.files) {
    record.sides[file.name] = file.sha256.hex();
  }
  for (const auto& [name, stamp] : replica_.state->weights) record.weights.push_back(name);
  DW_RETURN_IF_ERROR(make_folder(replica_.layout.new_journal()));
  return finish(std::move(record), held_folder());
}

// Already at the version: is it what it should be?
Status Attempt::check_held() {
  if (!verify_all_) return {};
  clock_.begin("verify");
  DW_ASSIGN_OR_RETURN(const Checkpoint held, open_held());
  DW_ASSIGN_OR_RETURN(const std::vector<TensorSteps> steps, collect_steps(held, {}, route_.schema));
  const Target goal = target();
  DW_RETURN_IF_ERROR(build_in_place({goal, held, steps, true, &replica_.pool, progress_of(0)}));
  DW_RETURN_IF_ERROR(check_unedited());
  LocalState next = *replica_.state;
  next.weights = stamps_;
  return replica_.save(std::move(next));
}

// Where files beside the weights may be that the version has.
fs::path Attempt::sides_folder() const {
  if (!replica_.options.copy_on_write) return replica_.layout.root;
  return replica_.state ? held_folder() : replica_.layout.version(route_.record.manifest.version);
}

Status Attempt::plan_sides() {
  const std::map<std::string, HeldSide> none;
  DW_ASSIGN_OR_RETURN(sides_,
                      plan_side_files(sides_folder(), replica_.state ? replica_.state->sides : none,
                                      route_.record.manifest.files, replica_.options.verify_all));
  for (const SideFile& file : sides_.fetch) report_.bytes += file.size_bytes;
  report_.num_side_files = sides_.fetch.size() + sides_.remove.size();
  return {};
}

// At the version already, but for the files beside the weights.
Status Attempt::mend_sides() {
  if (!replica_.options.repair) return base_mismatch(sides_.defect);
  log_event(LogLevel::kWarning, "replica.repair",
            {{"local", replica_.layout.root}, {"reason", sides_.defect}});
  report_.repaired = true;
  report_.repair_reason = sides_.defect;
  verify_all_ = false;  // that was done
  DW_RETURN_IF_ERROR(make_folder(replica_.layout.work()));
  if (replica_.options.copy_on_write) {
    DW_RETURN_IF_ERROR(fetch());
    DW_RETURN_IF_ERROR(build());
  } else {
    DW_ASSIGN_OR_RETURN(const Checkpoint held, open_held());
    DW_RETURN_IF_ERROR(fetch_and_patch(held));
  }
  return remove_tree(replica_.layout.work());
}

// Parts first, in the order of the hops; then files beside the weights.
Result<std::vector<FetchItem>> Attempt::items_to_fetch() const {
  DW_ASSIGN_OR_RETURN(std::vector<FetchItem> items, parts().make());
  DW_RETURN_IF_ERROR(make_folder(side_file(0).parent_path()));
  for (size_t i = 0; i < sides_.fetch.size(); ++i) {
    items.push_back({side_object(sides_.fetch[i]), side_file(i)});
  }
  return items;
}

// No path leads around a file that the version has.
Status Attempt::note_bad_part(Fetch* fetch, Status status) {
  const auto item = fetch->bad_item();
  if (item && *item + sides_.fetch.size() < fetch->items().size()) {
    bad_part_ = fetch->items()[*item].part.name;
  }
  return status;
}

Status Attempt::fetch() {
  clock_.begin("fetch");
  DW_ASSIGN_OR_RETURN(std::vector<FetchItem> items, items_to_fetch());
  Fetch fetch(*replica_.store, std::move(items));
  Status status = fetch.finish(progress_of(0));
  if (!status.ok()) return note_bad_part(&fetch, std::move(status));
  DW_SYNC_POINT("replica: all parts fetched");
  return {};
}

Status Attempt::build() {
  clock_.begin("decode");
  DW_ASSIGN_OR_RETURN(opened_, parts().open_deltas());
  DW_RETURN_IF_ERROR(make_folder(replica_.layout.new_journal()));
  DW_ASSIGN_OR_RETURN(const Checkpoint source,
                      route_.from_whole ? Checkpoint::open(parts().anchor()) : open_held());
  DW_ASSIGN_OR_RETURN(const std::vector<TensorSteps> steps,
                      collect_steps(source, opened_, route_.schema));
  DW_ASSIGN_OR_RETURN(const PlannedLayout layout, plan_layout(source, route_.schema));
  const Target goal = target();
  const BuildContext build{goal,           source,
                           steps,          route_.from_whole || verify_all_,
                           &replica_.pool, progress_of(report_.bytes)};
  for (const TensorSteps& tensor : steps) {
    for (const Delta::Entry* item : tensor.entries) report_.num_changed += item->entry.num_changed;
  }
  return route_.from_whole ? build_from_whole(build, layout) : build_from_held(build, layout);
}

// In place: a redo record, made while parts still arrive.
Status Attempt::fetch_and_patch(const Checkpoint& held) {
  const fs::path folder = replica_.layout.new_journal() / "redo";
  DW_RETURN_IF_ERROR(make_folder(replica_.layout.new_journal()));
  DW_RETURN_IF_ERROR(make_folder(folder));
  DeltaInfo info;
  DW_ASSIGN_OR_RETURN(info.base,
                      parse_digest(DigestKind::kXxh3_128, replica_.state->replica.state));
  info.target = route_.record.manifest.state;
  const StageMemory memory = share_stage_memory(replica_.options.memory_limit);
  RedoWriter redo(folder, info, memory.slab_bytes);
  clock_.end();
  const double fetch_begin = clock_.now();
  DW_ASSIGN_OR_RETURN(std::vector<FetchItem> items, items_to_fetch());
  Fetch fetch(*replica_.store, std::move(items));
  const Target goal = target();
  EagerParts eager(goal, held);
  std::optional<double> decode_begin;
  while (true) {
    const Result<std::optional<size_t>> next = fetch.next(progress_of(built_bytes_));
    if (!next.ok()) return note_bad_part(&fetch, next.status());
    if (!decode_begin) decode_begin = clock_.now();
    if (!*next) break;
    // A tensor may change in each of several hops; files beside the weights come last.
    if (route_.hops.size() != 1 || **next >= route_.hops[0].parts.size()) continue;
    DW_ASSIGN_OR_RETURN(const EagerParts::Ready ready, eager.add(parts().part(0, **next)));
    DW_RETURN_IF_ERROR(build_steps(held, ready.steps, false, fetch.received_bytes(), &redo));
  }
  DW_SYNC_POINT("replica: all parts fetched");
  // Do they fit together, and what is left to do?
  DW_ASSIGN_OR_RETURN(opened_, parts().open_deltas());
  DW_ASSIGN_OR_RETURN(std::vector<TensorSteps> steps, collect_steps(held, opened_, route_.schema));
  eager.erase_done(&steps);
  DW_RETURN_IF_ERROR(build_steps(held, steps, verify_all_, report_.bytes, &redo));
  JournalRecord record;
  record.kind = JournalKind::kPatch;
  DW_ASSIGN_OR_RETURN(record.redo, redo.finish());
  report_.phases.push_back({"fetch", fetch_begin, clock_.at(fetch.last_arrival())});
  report_.phases.push_back({"decode", *decode_begin, clock_.now()});
  DW_RETURN_IF_ERROR(sync_directory(folder));
  report_.num_changed = redo.num_changed();
  for (const auto& [name, stamp] : replica_.state->weights) record.weights.push_back(name);
  return finish(std::move(record));
}

Status Attempt::build_steps(const Checkpoint& held, std::span<const TensorSteps> steps,
                            bool untouched_too, uint64_t fetched, RedoWriter* redo) {
  const Target goal = target();
  BuildContext build{goal,          held,           steps,
                     untouched_too, &replica_.pool, progress_of(fetched + built_bytes_)};
  build.memory = share_stage_memory(replica_.options.memory_limit);
  DW_RETURN_IF_ERROR(build_redo(build, replica_.layout.work(), redo));
  built_bytes_ += build_bytes(build);
  return {};
}

// Weights that the version does not change come along: copies that share their blocks where they
// can.
Status Attempt::keep_held_files(const std::set<std::string>& gone) {
  std::error_code error;
  for (const auto& [name, stamp] : replica_.state->weights) {
    if (gone.contains(name) || fs::exists(files_folder() / name, error)) continue;
    DW_RETURN_IF_ERROR(clone_file(held_folder() / name, files_folder() / name));
  }
  return {};
}

// Copy-on-write, or tensors came, went or changed their form.
Status Attempt::build_from_held(const BuildContext& build, const PlannedLayout& layout) {
  DW_RETURN_IF_ERROR(make_folder(files_folder()));
  const bool apart = replica_.options.copy_on_write;
  JournalRecord record;
  record.kind = apart ? JournalKind::kSwitch : JournalKind::kFiles;
  for (const PlannedFile& file : layout.files) record.weights.push_back(file.name);
  if (build.source.has_index()) record.weights.emplace_back(kIndexFileName);
  if (layout.relaid) {
    DW_ASSIGN_OR_RETURN(record.files, build_files(build, layout, files_folder()));
    record.remove = layout.gone;
    if (apart) DW_RETURN_IF_ERROR(keep_held_files({layout.gone.begin(), layout.gone.end()}));
  } else {
    DW_RETURN_IF_ERROR(keep_held_files({}));
    DW_ASSIGN_OR_RETURN(const Checkpoint clone,
                        open_own_checkpoint(files_folder(), record.weights));
    DW_ASSIGN_OR_RETURN(const std::vector<TensorSteps> steps,
                        collect_steps(clone, opened_, route_.schema));
    DW_RETURN_IF_ERROR(build_in_place(
        {build.target, clone, steps, build.check_untouched, build.pool, build.progress}));
  }
  if (apart) DW_RETURN_IF_ERROR(check_unedited());  // what the version does not change was copied
  return finish(std::move(record));
}

// A version stored whole, and what deltas make of it: all files are new.
Status Attempt::build_from_whole(const BuildContext& build, const PlannedLayout& layout) {
  std::set<std::string> fetched;
  for (const PartRef& part : route_.hops[0].parts) {
    DW_ASSIGN_OR_RETURN(std::string name, checkpoint_file_of(part));
    if (is_weights_file(name)) fetched.insert(std::move(name));
  }
  JournalRecord record;
  record.kind = replica_.options.copy_on_write ? JournalKind::kSwitch : JournalKind::kFiles;
  for (const PlannedFile& file : layout.files) record.weights.push_back(file.name);
  if (build.source.has_index()) record.weights.emplace_back(kIndexFileName);
  const std::set<std::string> gone(layout.gone.begin(), layout.gone.end());
  if (layout.relaid) {
    DW_RETURN_IF_ERROR(make_folder(files_folder()));
    DW_ASSIGN_OR_RETURN(const std::vector<std::string> built,
                        build_files(build, layout, files_folder()));
    for (const std::string& name : fetched) {
      if (gone.contains(name) || std::find(built.begin(), built.end(), name) != built.end()) {
        continue;
      }
      DW_RETURN_IF_ERROR(rename_path(parts().anchor() / name, files_folder() / name));
    }
  } else {
    DW_RETURN_IF_ERROR(build_in_place(build));
    DW_RETURN_IF_ERROR(rename_path(parts().anchor(), files_folder()));
  }
  record.files = record.weights;
  if (replica_.state && !replica_.options.copy_on_write) {
    const std::set<std::string> now(record.files.begin(), record.files.end());
    for (const auto& [name, stamp] : replica_.state->weights) {
      if (!now.contains(name)) record.remove.push_back(name);
    }
  }
  return finish(std::move(record));
}

// New files beside the weights become part of the step; a version's own folder gets all of them.
Status Attempt::place_sides(JournalRecord* record) {
  const bool apart = record->kind == JournalKind::kSwitch;
  for (const SideFile& file : route_.record.manifest.files) {
    record->sides[file.name] = file.sha256.hex();
  }
  record->replaces = sides_.ours;
  // A folder that is there already may be this version's from before.
  const fs::path before = replica_.layout.version(route_.record.manifest.version);
  if (apart && before != sides_folder()) {
    DW_ASSIGN_OR_RETURN(SidePlan old,
                        plan_side_files(before, {}, route_.record.manifest.files, true));
    record->replaces = std::move(old.ours);
  }
  if (!sides_.fetch.empty() || apart) DW_RETURN_IF_ERROR(make_folder(files_folder()));
  for (size_t i = 0; i < sides_.fetch.size(); ++i) {
    const std::string& name = sides_.fetch[i].name;
    DW_RETURN_IF_ERROR(rename_path(side_file(i), files_folder() / name));
    record->files.push_back(name);
  }
  if (!apart) {
    record->remove.insert(record->remove.end(), sides_.remove.begin(), sides_.remove.end());
    return {};
  }
  for (const auto& [name, side] : sides_.keep) {
    DW_RETURN_IF_ERROR(clone_file(sides_folder() / name, files_folder() / name));
  }
  return {};
}

Status Attempt::sync_files(const fs::path& folder, const std::vector<std::string>& names) {
  DW_RETURN_IF_ERROR(parallel_try(&replica_.pool, names.size(), [&](size_t i, unsigned) -> Status {
    std::error_code error;
    const fs::path file = folder / names[i];
    return fs::exists(file, error) ? sync_file(file) : Status();
  }));
  return sync_directory(folder);
}

// Of the weights that the step brings.
Result<FileStamps> Attempt::stamp_made(const JournalRecord& record, const fs::path& files) const {
  if (files != files_folder()) return stamps_;  // only a link moves
  std::vector<std::string> names = record.weights;
  if (record.kind != JournalKind::kSwitch) {
    const std::set<std::string> brought(record.files.begin(), record.files.end());
    std::erase_if(names, [&](const std::string& name) { return !brought.contains(name); });
  }
  return stamp_files(files, names);
}

Status Attempt::finish(JournalRecord record) {
  DW_RETURN_IF_ERROR(place_sides(&record));
  return finish(std::move(record), files_folder());
}

// The journal is whole and on disk; only its name is missing. `files` are those that it brings.
Status Attempt::finish(JournalRecord record, const fs::path& files) {
  clock_.begin("journal");
  const fs::path folder = replica_.layout.new_journal();
  const Manifest& manifest = route_.record.manifest;
  record.run = manifest.run;
  record.version = manifest.version;
  record.manifest = route_.record.digest.hex();
  record.state = manifest.state.hex();
  record.target = manifest;
  ReplicaCore::Pending pending;
  if (record.kind != JournalKind::kPatch || !record.files.empty()) {
    std::vector<std::string> names = record.weights;
    for (const auto& [name, digest] : record.sides) names.push_back(name);
    DW_RETURN_IF_ERROR(sync_files(files, names));
    DW_SYNC_POINT("replica: new files on disk");
    DW_ASSIGN_OR_RETURN(const FileStamp stamp, stamp_of(files));
    record.inode = stamp.inode;
    DW_ASSIGN_OR_RETURN(pending.made, stamp_made(record, files));
  }
  DW_ASSIGN_OR_RETURN(const std::string text, serialise_journal_record(record));
  DW_RETURN_IF_ERROR(write_text_file(folder / kJournalRecordName, text));
  DW_RETURN_IF_ERROR(sync_directory(folder));
  DW_SYNC_POINT("replica: journal prepared");
  if (record.kind == JournalKind::kPatch) {
    DW_ASSIGN_OR_RETURN(pending.patch, open_patch(replica_.layout, folder, record));
  }
  // Files that stay where they are.
  for (const std::string& name : record.weights) {
    const auto held = stamps_.find(name);
    if (!route_.from_whole && held != stamps_.end() && !pending.made.contains(name)) {
      pending.held.insert(*held);
    }
  }
  pending.record = std::move(record);
  replica_.pending.emplace(std::move(pending));
  return {};
}

Status Attempt::run(const AttemptGoal& goal) {
  const uint64_t version = goal.version;
  const bool from_nothing = goal.from_nothing;
  clock_.begin("plan");
  DW_RETURN_IF_ERROR(remove_tree(replica_.layout.work()));
  DW_RETURN_IF_ERROR(remove_tree(replica_.layout.new_journal()));
  std::optional<uint64_t> from;
  if (!from_nothing) from = replica_.state->replica.version;
  if (replica_.beat && from != version) replica_.beat->fetching(from, version);
  DW_RETURN_IF_ERROR(make_plan(goal));
  DW_RETURN_IF_ERROR(plan_sides());
  if (!from_nothing) {
    // A file that cannot be looked at is found missing when the checkpoint is opened.
    for (const auto& [name, left] : replica_.state->weights) {
      const Result<FileStamp> now = stamp_of(held_folder() / name);
      if (now.ok()) stamps_[name] = *now;
    }
    verify_all_ = replica_.options.verify_all || stamps_ != replica_.state->weights;
    if (route_.hops.empty()) {
      DW_RETURN_IF_ERROR(check_held());
      if (!sides_.all_there()) return mend_sides();
      if (goal.relink) return move_link();
      if (sides_.keep == replica_.state->sides) return {};
      LocalState next = *replica_.state;
      next.sides = sides_.keep;
      return replica_.save(std::move(next));
    }
  }
  uint64_t local_bytes = 0;
  if (!from_nothing) {
    for (const auto& [name, stamp] : replica_.state->weights) local_bytes += stamp.size_bytes;
  }
  DW_RETURN_IF_ERROR(check_hop_sizes(route_.hops, route_.schema, local_bytes));
  DW_RETURN_IF_ERROR(make_folder(replica_.layout.work()));
  DW_SYNC_POINT("replica: planned");
  bool in_place = false;
  if (!route_.from_whole && !replica_.options.copy_on_write) {
    DW_ASSIGN_OR_RETURN(const Checkpoint held, open_held());
    DW_ASSIGN_OR_RETURN(const PlannedLayout layout, plan_layout(held, route_.schema));
    in_place = !layout.relaid;
    if (in_place) DW_RETURN_IF_ERROR(fetch_and_patch(held));
  }
  if (!in_place) {
    DW_RETURN_IF_ERROR(fetch());
    DW_RETURN_IF_ERROR(build());
  }
  // Parts have served; what the journal needs is in the journal.
  return remove_tree(replica_.layout.work());
}

}  // namespace

Status ReplicaCore::attempt(const AttemptGoal& goal, PullReport* report, PhaseClock* clock) {
  return go_around_bad_parts(options.repair, layout.root, report,
                             [&](const std::set<std::string>& avoid) -> Attempted {
                               Attempt own(*this, avoid, report, clock);
                               Status status = own.run(goal);
                               return {std::move(status), own.bad_part()};
                             });
}

// Nothing is fetched for it: the files themselves say which version they are.
Status ReplicaCore::recover_lost_state(uint64_t newest, PullReport* report) {
  DW_ASSIGN_OR_RETURN(std::optional<LocalState> found,
                      find_lost_state(*chain, layout, options.copy_on_write, newest, &pool));
  if (!found) return {};
  log_event(LogLevel::kWarning, "replica.repair",
            {{"local", layout.root}, {"reason", damage}, {"version", found->replica.version}});
  report->repaired = true;
  report->repair_reason = std::exchange(damage, {});
  state_lost = state_gone = false;
  return save(std::move(*found));
}

Result<Held> ReplicaCore::held() const {
  DW_ASSIGN_OR_RETURN(const Digest manifest,
                      parse_digest(DigestKind::kSha256, state->replica.manifest));
  return Held{state->replica.version, manifest};
}

// The files are not what the state says: all of them anew. What the state says still binds.
Status ReplicaCore::start_again(uint64_t version, bool named, PullReport* report,
                                PhaseClock* clock) {
  if (state && !named) {
    DW_ASSIGN_OR_RETURN(const Held before, held());
    DW_RETURN_IF_ERROR(check_history(*chain, before));
  }
  if (!report->repair_reason.empty()) {
    log_event(LogLevel::kWarning, "replica.repair",
              {{"local", layout.root}, {"reason", report->repair_reason}});
  }
  Status status = attempt({version, true, named, false}, report, clock);
  report->repaired = report->repaired || !report->repair_reason.empty();
  // What is held does not count any more: whatever is wrong came from the store.
  if (status.code() == Code::kBaseMismatch) return corruption(status.message());
  return status;
}

// Nothing is fetched: the step is the one that was interrupted. False: there is none, or none that
// can be carried out.
Result<bool> ReplicaCore::resume(PullReport* report) {
  if (!unfinished) return false;
  Pending step;
  step.record = *unfinished;
  step.resumed = true;
  if (step.record.kind == JournalKind::kPatch) {
    Result<OpenPatch> patch = open_patch(layout, layout.journal(), step.record);
    const Code code = patch.status().code();
    if (code == Code::kIo || code == Code::kOutOfMemory) return patch.status();
    if (!patch.ok()) {
      give_up(patch.status());
      return false;
    }
    step.patch.emplace(std::move(*patch));
  }
  report->version = step.record.version;
  report->num_tensors = step.record.target.digests.size();
  report->recovered = report->changed = true;
  report->path = layout.checkpoint(step.record.kind == JournalKind::kSwitch, report->version);
  step.report = *report;
  pending.emplace(std::move(step));
  return true;
}

Result<PullReport> ReplicaCore::prepare(PullGoal goal) {
  DW_RETURN_IF_ERROR(keep_folder());
  Status status = settle(nullptr);
  // Files that were changed since they were patched are repaired like any others.
  if (!status.ok() && (damage.empty() || !options.repair)) return status;
  pending.reset();
  PullReport report;
  report.run = chain->run();
  PhaseClock clock(&report);
  clock.begin("head");
  if (state) report.from = state->replica.version;
  DW_ASSIGN_OR_RETURN(const bool resumed, resume(&report));
  if (resumed) return report;
  if (!goal.head && (!goal.version || state_lost)) {
    DW_ASSIGN_OR_RETURN(goal.head, head());
  }
  if (state_lost && options.repair) {
    clock.begin("recognise");
    const uint64_t newest = std::max(goal.version.value_or(0), goal.head.value_or(0));
    DW_RETURN_IF_ERROR(recover_lost_state(newest, &report));
  }
  if (state_gone) {
    return invalid_argument(damage +
                            (options.repair ? " that are none of the newest versions: " : ": ") +
                            "move them away, or give another folder");
  }
  if (state) report.from = state->replica.version;
  DW_ASSIGN_OR_RETURN(const uint64_t version,
                      choose_version(*chain, goal, goal.head, report.from, options.at_least));
  const bool named = goal.version.has_value();
  const Status link = state && options.copy_on_write && damage.empty() ? check_link() : Status();
  if (!link.ok() && (!options.repair || link.code() != Code::kBaseMismatch)) return link;
  if (!link.ok()) {
    log_event(LogLevel::kWarning, "replica.repair",
              {{"local", layout.root}, {"reason", link.message()}});
    report.repaired = true;
    report.repair_reason = link.message();
  }
  if (!damage.empty()) {
    status = base_mismatch(damage);
  } else {
    status = state ? attempt({version, false, named, !link.ok()}, &report, &clock) : Status();
  }
  const bool mismatch = status.code() == Code::kBaseMismatch;
  if (mismatch) report.repair_reason = status.message();
  if (mismatch ? options.repair : !state) {
    status = start_again(version, named, &report, &clock);
  }
  if (!status.ok()) {
    pending.reset();
    (void)remove_tree(layout.work());
    (void)remove_tree(layout.new_journal());
    if (beat && state) beat->holds(state->replica.version, state->replica.serving);
    return status;
  }
  clock.end();
  report.changed = pending.has_value();
  report.seconds = clock.now();
  if (state) report.path = layout.checkpoint(state->copy_on_write, state->replica.version);
  if (pending) pending->report = report;
  return report;
}

}  // namespace deltawire
