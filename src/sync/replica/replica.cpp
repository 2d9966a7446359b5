// The local transaction: what happens to LOCAL, in an order that survives the end of the process at
// any instant. docs/protocol.md, "Applying", is its contract.
#include "deltawire/replica.h"

#include <unistd.h>

#include <algorithm>

#include "base/file.h"
#include "base/log.h"
#include "base/sync_point.h"
#include "sync/replica/impl.h"
#include "sync/replica/side_files.h"
#include "tensor/text.h"

namespace deltawire {
namespace fs = std::filesystem;
namespace {

fs::path resolved(const fs::path& local) {
  std::error_code error;
  const fs::path found = fs::weakly_canonical(local, error);
  return error ? local : found;
}

bool is_there(const fs::path& path) {
  std::error_code error;
  return fs::symlink_status(path, error).type() != fs::file_type::not_found;
}

// A new replica does not move in with other people's files.
Status check_unused(const LocalLayout& layout) {
  std::error_code error;
  for (fs::directory_iterator it(layout.root, error), end; !error && it != end;
       it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (name[0] == '.' || name == "lost+found") continue;
    return invalid_argument(layout.root.string() + ": holds " + quote(name) +
                            " and is not a replica; give a folder that is empty or not there yet");
  }
  if (error) return io_error(layout.root.string() + ": cannot list: " + error.message());
  return {};
}

// Files that a killed process was writing.
void remove_temporaries(const fs::path& folder) {
  std::error_code error;
  std::vector<fs::path> found;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    if (it->path().extension() == ".tmp") found.push_back(it->path());
  }
  for (const fs::path& path : found) fs::remove(path, error);
}

}  // namespace

Status ReplicaCore::open() {
  if (!is_there(layout.own()) && is_there(layout.root)) DW_RETURN_IF_ERROR(check_unused(layout));
  DW_RETURN_IF_ERROR(make_folder(layout.own()));
  DW_ASSIGN_OR_RETURN(LocalLock taken, LocalLock::take(layout.lock()));
  lock.emplace(std::move(taken));
  DW_RETURN_IF_ERROR(recover());
  if (!state && damage.empty()) DW_RETURN_IF_ERROR(check_unused(layout));
  const bool apart = state ? state->copy_on_write : is_there(layout.current());
  if ((state || state_lost) && apart != options.copy_on_write) {
    return invalid_argument(layout.root.string() + ": is kept " +
                            (apart ? "copy-on-write" : "in place") +
                            "; the other way needs a folder of its own");
  }
  DW_ASSIGN_OR_RETURN(Chain opened, open_chain(store, options.trust_key, options.run));
  chain.emplace(std::move(opened));
  if (state && state->replica.run != chain->run()) {
    return base_mismatch(layout.root.string() + ": belongs to run " + state->replica.run + ", " +
                         store->url() + " holds run " + chain->run());
  }
  if (options.heartbeat) {
    DW_ASSIGN_OR_RETURN(const std::string id, replica_id(layout.own()));
    beat = std::make_unique<ReplicaBeat>(
        store, options.name.empty() ? default_name(resolved(layout.root), id) : options.name, id);
    if (state) beat->holds(state->replica.version, state->replica.serving);
  }
  return {};
}

// Finishes or drops what an earlier process left half-way.
Status ReplicaCore::recover() {
  pending.reset();
  remove_temporaries(layout.own());
  DW_RETURN_IF_ERROR(remove_tree(layout.work()));
  DW_RETURN_IF_ERROR(remove_tree(layout.new_journal()));
  DW_SYNC_POINT("replica: leftovers removed");
  Result<std::optional<LocalState>> read = read_local_state(layout.state());
  state_lost = !read.ok() && read.status().code() == Code::kCorruption;
  if (state_lost) {
    damage = read.status().message();
  } else {
    DW_ASSIGN_OR_RETURN(state, std::move(read));
  }
  if (state) shown = state->replica;
  if (is_there(layout.journal())) {
    Status status = finish_journal();
    if (status.code() == Code::kIo || status.code() == Code::kOutOfMemory) return status;
    if (!status.ok()) damage = status.message();
  } else if (state && state->replica.patching_to) {
    damage = layout.root.string() + ": a patch to version " +
             std::to_string(*state->replica.patching_to) + " was begun and its journal is gone";
  }
  return {};
}

Status ReplicaCore::finish_journal() {
  DW_ASSIGN_OR_RETURN(const JournalRecord record, read_journal_record(layout.journal()));
  const bool recorded = state && !state->replica.patching_to &&
                        state->replica.version == record.version &&
                        state->replica.manifest == record.manifest;
  if (recorded) return drop_journal();
  std::optional<OpenPatch> patch;
  if (record.kind == JournalKind::kPatch) {
    DW_ASSIGN_OR_RETURN(patch, open_patch(layout, layout.journal(), record));
  }
  DW_ASSIGN_OR_RETURN(CarriedOut done, carry_out(record, patch ? &*patch : nullptr));
  if (done.files) DW_RETURN_IF_ERROR(done.files->sync(&pool));
  if (patch) DW_RETURN_IF_ERROR(verify_patch(*patch, &pool));
  DW_ASSIGN_OR_RETURN(
      auto sides,
      held_side_files(layout.checkpoint(record.kind == JournalKind::kSwitch, record.version),
                      record, true));
  DW_RETURN_IF_ERROR(record_version(record, std::move(sides)));
  recovered = true;
  log_event(LogLevel::kWarning, "replica.recovered",
            {{"local", layout.root}, {"version", record.version}});
  return drop_journal();
}

Result<ReplicaCore::CarriedOut> ReplicaCore::carry_out(const JournalRecord& record,
                                                       const OpenPatch* patch) {
  CarriedOut done;
  switch (record.kind) {
    case JournalKind::kPatch: {
      DW_ASSIGN_OR_RETURN(done.files, carry_out_patch(*patch, &pool));
      DW_RETURN_IF_ERROR(carry_out_files(layout, record, &done.set_aside));
      return done;
    }
    case JournalKind::kFiles:
      DW_RETURN_IF_ERROR(carry_out_files(layout, record, &done.set_aside));
      return done;
    case JournalKind::kSwitch:
      DW_RETURN_IF_ERROR(carry_out_switch(layout, record, &done.set_aside));
      return done;
  }
  return internal_error("journal of an unknown kind");
}

Status ReplicaCore::save(LocalState next) {
  next.replica.updated = utc_now();
  DW_RETURN_IF_ERROR(write_local_state(layout.state(), next));
  state = std::move(next);
  shown = state->replica;
  return {};
}

Status ReplicaCore::record_version(const JournalRecord& record,
                                   std::map<std::string, HeldSide> sides) {
  LocalState next;
  next.copy_on_write = record.kind == JournalKind::kSwitch;
  next.replica.run = record.run;
  next.replica.version = record.version;
  next.replica.manifest = record.manifest;
  next.replica.state = record.state;
  if (state) next.replica.serving = state->replica.serving;
  DW_ASSIGN_OR_RETURN(
      next.weights,
      stamp_files(layout.checkpoint(next.copy_on_write, record.version), record.weights));
  next.sides = std::move(sides);
  DW_RETURN_IF_ERROR(save(std::move(next)));
  DW_SYNC_POINT("replica: version recorded");
  damage.clear();
  state_lost = false;
  return {};
}

// Out of the way in one step; its files may go in many.
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

Result<PullReport> ReplicaCore::commit() {
  DW_RETURN_IF_ERROR(settle(nullptr));
  if (!pending) {
    PullReport report;
    report.run = chain->run();
    if (state) {
      report.version = state->replica.version;
      report.from = state->replica.version;
      report.path = layout.checkpoint(state->copy_on_write, report.version);
    }
    return report;
  }
  Pending step = std::move(*pending);
  pending.reset();
  PullReport& report = step.report;
  const auto start = std::chrono::steady_clock::now();
  const double before = report.seconds;
  const auto elapsed = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  const auto phase = [&](const char* name, double begin) {
    report.phases.push_back({name, before + begin, before + elapsed()});
  };
  if (step.patch) {
    // Time may have passed since prepare() read the files.
    if (const auto edited = find_edited(layout.root, step.stamps)) {
      return base_mismatch(*edited + " since the next version was prepared");
    }
  }
  if (is_there(layout.journal())) {  // one that could not be carried out; this step replaces it
    DW_RETURN_IF_ERROR(make_folder(layout.work()));
    DW_RETURN_IF_ERROR(remove_tree(layout.work() / "damaged"));
    DW_RETURN_IF_ERROR(rename_path(layout.journal(), layout.work() / "damaged"));
  }
  DW_SYNC_POINT("replica: before the journal is committed");
  DW_RETURN_IF_ERROR(rename_path(layout.new_journal(), layout.journal()));
  DW_SYNC_POINT("replica: journal renamed");
  DW_RETURN_IF_ERROR(sync_directory(layout.own()));
  DW_SYNC_POINT("replica: journal committed");
  if (state) {
    LocalState patching = *state;
    patching.replica.patching_to = step.record.version;
    DW_RETURN_IF_ERROR(save(std::move(patching)));
    DW_SYNC_POINT("replica: patching_to noted");
  }
  phase("journal", 0);
  const double patch_begin = elapsed();
  Unsettled done;
  DW_ASSIGN_OR_RETURN(CarriedOut carried,
                      carry_out(step.record, step.patch ? &*step.patch : nullptr));
  done.files = std::move(carried.files);
  report.set_aside = std::move(carried.set_aside);
  // Now: what somebody edits from here on is not the version's.
  DW_ASSIGN_OR_RETURN(done.sides,
                      held_side_files(layout.checkpoint(step.record.kind == JournalKind::kSwitch,
                                                        step.record.version),
                                      step.record, false));
  report.patch_seconds = elapsed() - patch_begin;
  phase("patch", patch_begin);
  ReplicaState now{
      step.record.run, report.version, step.record.manifest, step.record.state, {}, utc_now(), {}};
  if (state) now.serving = state->replica.serving;
  shown = std::move(now);
  report.path = layout.checkpoint(step.record.kind == JournalKind::kSwitch, report.version);
  report.seconds += elapsed();
  done.record = std::move(step.record);
  done.seconds = report.seconds;
  done.committed = std::chrono::steady_clock::now();
  unsettled.emplace(std::move(done));
  log_event(LogLevel::kInfo, "replica.committed",
            {{"local", layout.root}, {"version", report.version}, {"bytes", report.bytes}});
  return report;
}

// Until here the journal is what the version rests on: killed before, the next process patches
// again what the disk may have lost.
Status ReplicaCore::settle(PullReport* report) {
  if (!unsettled) return {};
  Unsettled step = std::move(*unsettled);
  unsettled.reset();
  const auto now = [&] {
    return step.seconds +
           std::chrono::duration<double>(std::chrono::steady_clock::now() - step.committed).count();
  };
  const double sync_begin = now();
  if (step.files) DW_RETURN_IF_ERROR(step.files->sync(&pool));
  const double record_begin = now();
  DW_RETURN_IF_ERROR(record_version(step.record, std::move(step.sides)));
  if (beat) beat->holds(state->replica.version, state->replica.serving);
  DW_RETURN_IF_ERROR(drop_journal());
  if (state->copy_on_write) remove_old_versions();
  if (report == nullptr) return {};
  if (step.files) report->phases.push_back({"sync", sync_begin, record_begin});
  report->phases.push_back({"record", record_begin, now()});
  report->seconds = now();
  return {};
}

ReplicaCore::~ReplicaCore() {
  const Status status = settle(nullptr);
  if (!status.ok()) log_event(LogLevel::kWarning, "replica.not_settled", {{"error", status}});
}

Result<std::optional<uint64_t>> ReplicaCore::head() {
  const std::optional<uint64_t> known = shown ? std::optional(shown->version) : std::nullopt;
  DW_ASSIGN_OR_RETURN(Chain::Newest newest, find_newest(*chain, known));
  seen = std::move(newest.record);
  return newest.version;
}

// Best effort: what cannot be removed now is tried again after the next version.
void ReplicaCore::remove_old_versions() const {
  std::vector<uint64_t> versions = versions_side_by_side(layout);
  std::erase(versions, state->replica.version);
  for (size_t i = 0; i + options.keep_versions < versions.size(); ++i) {
    const Status status = remove_tree(layout.version(versions[i]));
    if (!status.ok()) log_event(LogLevel::kWarning, "replica.cannot_remove", {{"error", status}});
    DW_SYNC_POINT("replica: old version removed");
  }
}

Replica::Replica(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Replica::~Replica() = default;
Replica::Replica(Replica&&) noexcept = default;
Replica& Replica::operator=(Replica&&) noexcept = default;

Result<Replica> Replica::open(std::shared_ptr<Store> store, fs::path local,
                              ReplicaOptions options) {
  if (local.empty()) return invalid_argument("a replica needs a folder");
  auto impl = std::make_unique<Impl>(std::move(store), std::move(local), std::move(options));
  DW_RETURN_IF_ERROR(impl->open());
  return Replica(std::move(impl));
}

const std::optional<ReplicaState>& Replica::state() const noexcept { return impl_->shown; }
Result<std::optional<uint64_t>> Replica::head() { return impl_->head(); }
Result<PullReport> Replica::prepare(const PullGoal& goal) { return impl_->prepare(goal); }
Result<PullReport> Replica::commit() { return impl_->commit(); }
Status Replica::settle(PullReport* report) { return impl_->settle(report); }

Result<PullReport> Replica::pull(const PullGoal& goal) {
  DW_ASSIGN_OR_RETURN(PullReport prepared, prepare(goal));
  if (!impl_->pending) return prepared;
  DW_ASSIGN_OR_RETURN(PullReport done, commit());
  DW_RETURN_IF_ERROR(settle(&done));
  return done;
}

Status Replica::set_serving(std::optional<uint64_t> version) {
  DW_RETURN_IF_ERROR(settle());
  if (!impl_->state) return invalid_argument("a replica that holds no version serves none");
  LocalState next = *impl_->state;
  next.replica.serving = version;
  DW_RETURN_IF_ERROR(impl_->save(std::move(next)));
  if (impl_->beat) impl_->beat->holds(impl_->state->replica.version, version);
  return {};
}

}  // namespace deltawire
