// The local transaction: changes to LOCAL, in an order that survives a crash at any point.
// docs/protocol.md, "Applying", is its contract.
#include <algorithm>

#include "base/file.h"
#include "base/folder.h"
#include "base/log.h"
#include "base/sync_point.h"
#include "replica/impl.h"
#include "replica/recognise.h"
#include "replica/side_files.h"

namespace deltawire {
namespace fs = std::filesystem;
namespace {

// Whether `now` is the file `made` after a rename, which changes only ctime.
bool is_renamed(const FileStamp& made, const FileStamp& now) {
  FileStamp expected = made;
  expected.changed_ns = now.changed_ns;
  return expected == now;
}

bool is_passing(const Status& status) {
  return status.code() == Code::kIo || status.code() == Code::kOutOfMemory;
}

}  // namespace

// Returns the stamps of the patched files.
Result<FileStamps> ReplicaCore::carry_out(const Pending& step,
                                          std::vector<std::string>* set_aside) {
  FileStamps patched;
  switch (step.record.kind) {
    case JournalKind::kPatch: {
      DW_ASSIGN_OR_RETURN(patched, carry_out_patch(*step.patch, &pool));
      DW_RETURN_IF_ERROR(carry_out_files(layout, step.record, set_aside));
      return patched;
    }
    case JournalKind::kFiles:
      DW_RETURN_IF_ERROR(carry_out_files(layout, step.record, set_aside));
      return patched;
    case JournalKind::kSwitch:
      DW_RETURN_IF_ERROR(carry_out_switch(layout, step.record, set_aside));
      return patched;
  }
  return internal_error("journal of an unknown kind");
}

// The stamps that the checkpoint's files must have until settle() records them: those of written
// files after the write, those of other files when they were read. Nothing is known for a resumed
// step.
FileStamps ReplicaCore::stamps_after(const Pending& step, FileStamps patched) const {
  if (step.resumed) return {};
  FileStamps left = std::move(patched);
  left.insert(step.held.begin(), step.held.end());
  for (const auto& [name, made] : step.written_files) {
    left[name] = made;
    if (step.record.kind != JournalKind::kFiles) continue;
    const Result<FileStamp> now = stamp_of(layout.root / name);
    if (now.ok() && is_renamed(made, *now)) left[name] = *now;
  }
  return left;
}

Status ReplicaCore::save(LocalState next) {
  next.replica.updated = utc_now();
  DW_RETURN_IF_ERROR(write_local_state(layout.state(), next));
  state = std::move(next);
  shown = state->replica;
  return {};
}

Status ReplicaCore::record_version(const JournalRecord& record, FileStamps weights,
                                   std::map<std::string, HeldSide> sides) {
  LocalState next;
  next.copy_on_write = record.kind == JournalKind::kSwitch;
  static_cast<Identity&>(next.replica) = record;
  next.replica.state = record.state;
  if (state) next.replica.serving = state->replica.serving;
  next.weights = std::move(weights);
  next.sides = std::move(sides);
  DW_RETURN_IF_ERROR(save(std::move(next)));
  DW_SYNC_POINT("replica: version recorded");
  damage.clear();
  state_lost = false;
  return {};
}

// Moves the journal away in one step, then deletes its files.
Status ReplicaCore::drop_journal() {
  DW_RETURN_IF_ERROR(make_folder(layout.work()));
  const fs::path done = layout.work() / "done";
  DW_RETURN_IF_ERROR(remove_tree(done));
  DW_RETURN_IF_ERROR(rename_path(layout.journal(), done));
  DW_SYNC_POINT("replica: journal put aside");
  DW_RETURN_IF_ERROR(sync_directory(layout.own()));
  DW_RETURN_IF_ERROR(remove_tree(layout.work()));
  DW_SYNC_POINT("replica: journal removed");
  return {};
}

// Called when the step cannot succeed: the files are not what they should be.
void ReplicaCore::give_up(const Status& status) {
  damage = status.message();
  unfinished.reset();
}

// From here on this or the next process finishes the step.
Status ReplicaCore::commit_journal(const Pending& step) {
  if (!step.resumed) {
    std::error_code error;
    // it could not be carried out, and this step replaces it
    if (fs::exists(layout.journal(), error)) {
      DW_RETURN_IF_ERROR(make_folder(layout.work()));
      DW_RETURN_IF_ERROR(remove_tree(layout.work() / "damaged"));
      DW_RETURN_IF_ERROR(rename_path(layout.journal(), layout.work() / "damaged"));
    }
    DW_SYNC_POINT("replica: before the journal is committed");
    DW_RETURN_IF_ERROR(rename_path(layout.new_journal(), layout.journal()));
    DW_SYNC_POINT("replica: journal renamed");
    unfinished = step.record;
    DW_RETURN_IF_ERROR(sync_directory(layout.own()));
    DW_SYNC_POINT("replica: journal committed");
  }
  if (!state || state->replica.patching_to == step.record.version) return {};
  LocalState patching = *state;
  patching.replica.patching_to = step.record.version;
  DW_RETURN_IF_ERROR(save(std::move(patching)));
  DW_SYNC_POINT("replica: patching_to noted");
  return {};
}

Result<PullReport> ReplicaCore::commit() {
  DW_RETURN_IF_ERROR(check_folder());
  DW_RETURN_IF_ERROR(settle(nullptr));
  if (!pending) {
    PullReport report;
    report.run = chain->run();
    if (state) {
      static_cast<Identity&>(report) = state->replica;
      report.from = state->replica.version;
      report.path = layout.checkpoint(state->copy_on_write, report.version);
    }
    return report;
  }
  Pending step = std::move(*pending);
  pending.reset();
  PullReport& report = step.report;
  PhaseClock clock(&report, report.seconds);
  // Files may have changed since prepare() read them.
  if (const auto edited = find_edited(layout.root, step.held)) {
    return base_mismatch(*edited + " since the next version was prepared");
  }
  clock.begin("journal");
  DW_RETURN_IF_ERROR(commit_journal(step));
  clock.begin("patch");
  Unsettled done;
  Result<FileStamps> patched = carry_out(step, &report.set_aside);
  if (!patched.ok()) {
    if (!is_passing(patched.status())) give_up(patched.status());
    return patched.status();
  }
  if (step.patch) done.files = std::move(step.patch->files);
  done.left = stamps_after(step, std::move(*patched));
  // Taken now, because later edits do not belong to the version.
  DW_ASSIGN_OR_RETURN(done.sides,
                      held_side_files(folder_of(step.record), step.record, step.resumed));
  clock.end();
  report.patch_seconds = report.phases.back().end - report.phases.back().begin;
  ReplicaState now{step.record, step.record.state, {}, utc_now(), {}};
  if (state) now.serving = state->replica.serving;
  shown = std::move(now);
  report.path = folder_of(step.record);
  report.seconds = clock.now();
  done.record = std::move(step.record);
  done.resumed = step.resumed;
  done.seconds = report.seconds;
  done.committed = std::chrono::steady_clock::now();
  unsettled.emplace(std::move(done));
  log_event(LogLevel::kInfo, "replica.committed",
            {{"local", layout.root}, {"version", report.version}, {"bytes", report.bytes}});
  return report;
}

// Until this succeeds, the version relies on the journal: after a crash the next process patches
// again what the disk may have lost. The stamps recorded are those taken after the patch, because
// an engine may load the files for minutes, and edits during that time must be noticed.
Status ReplicaCore::settle(PullReport* report) {
  if (!unsettled) return {};
  Unsettled step = std::move(*unsettled);
  unsettled.reset();
  shown = state ? std::optional(state->replica) : std::nullopt;
  DW_RETURN_IF_ERROR(check_folder());
  const auto now = [&] {
    return step.seconds +
           std::chrono::duration<double>(std::chrono::steady_clock::now() - step.committed).count();
  };
  const double sync_begin = now();
  if (step.files && options.sync_files) DW_RETURN_IF_ERROR(step.files->sync(&pool));
  const double check_begin = now();
  const JournalRecord& record = step.record;
  bool read = false;
  Result<FileStamps> proven =
      prove_files(folder_of(record), record.weights, step.left, record.target, &pool, &read);
  if (!proven.ok()) {
    Status status = proven.status();
    if (is_passing(status)) return status;
    status = std::move(status).at("version " + std::to_string(record.version) +
                                  " was patched, and then the files were changed");
    give_up(status);
    return status;
  }
  const double record_begin = now();
  DW_RETURN_IF_ERROR(record_version(record, std::move(*proven), std::move(step.sides)));
  if (beat) beat->holds(state->replica, state->replica.serving);
  if (step.resumed) {
    log_event(LogLevel::kWarning, "replica.recovered",
              {{"local", layout.root}, {"version", record.version}});
  }
  unfinished.reset();
  DW_RETURN_IF_ERROR(drop_journal());
  if (options.copy_on_write) remove_old_versions(options.copy_on_write->keep);
  if (report == nullptr) return {};
  if (step.files) report->phases.push_back({"sync", sync_begin, check_begin});
  if (read) report->phases.push_back({"check", check_begin, record_begin});
  report->phases.push_back({"record", record_begin, now()});
  report->seconds = now();
  return {};
}

ReplicaCore::~ReplicaCore() {
  const Status status = settle(nullptr);
  if (!status.ok()) log_event(LogLevel::kWarning, "replica.not_settled", {{"error", status}});
  beat.reset();  // before the lock is released
}

// Best effort: what cannot be removed is tried again after the next version.
void ReplicaCore::remove_old_versions(unsigned keep) const {
  std::vector<uint64_t> versions = version_folders(layout.root);
  std::erase(versions, state->replica.version);
  for (size_t i = 0; i + keep < versions.size(); ++i) {
    const Status status = remove_tree(layout.version(versions[i]));
    if (!status.ok()) log_event(LogLevel::kWarning, "replica.cannot_remove", {{"error", status}});
    DW_SYNC_POINT("replica: old version removed");
  }
}

}  // namespace deltawire
