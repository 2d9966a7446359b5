// Opening a replica's folder: its lock and its state.
#include "deltawire/replica.h"
#include "base/folder.h"

#include <unistd.h>

#include <algorithm>

#include "base/file.h"
#include "base/log.h"
#include "base/sync_point.h"
#include "replica/impl.h"
#include "replica/plan_pull.h"
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

// A new replica must not share a folder with other files.
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

// Removes temporary files of killed processes.
void remove_temporaries(const fs::path& folder) {
  std::error_code error;
  std::vector<fs::path> found;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    if (it->path().extension() == ".tmp") found.push_back(it->path());
  }
  for (const fs::path& path : found) fs::remove(path, error);
}

}  // namespace

Status ReplicaCore::open_folder() {
  const bool was_ours = is_there(layout.own());
  if (!was_ours && is_there(layout.root)) DW_RETURN_IF_ERROR(check_unused(layout));
  DW_RETURN_IF_ERROR(make_folder(layout.own()));
  DW_ASSIGN_OR_RETURN(LocalLock taken, LocalLock::take(layout.lock()));
  lock.emplace(std::move(taken));
  DW_RETURN_IF_ERROR(recover());
  const bool known = state || unfinished || !damage.empty();
  if (!known && was_ours && !check_unused(layout).ok()) {
    damage = layout.state().string() + ": is missing, but the folder has files";
    state_lost = state_gone = true;
  }
  const bool apart = state ? state->copy_on_write
                     : unfinished
                         ? unfinished->kind == JournalKind::kSwitch
                         : is_there(layout.current()) || !version_folders(layout.root).empty();
  if ((state || unfinished || state_lost) && apart != options.copy_on_write.has_value()) {
    return invalid_argument(layout.root.string() + ": is kept " +
                            (apart ? "copy-on-write" : "in place") +
                            "; to change that, use a new folder");
  }
  return {};
}

Status ReplicaCore::open() {
  DW_RETURN_IF_ERROR(open_folder());
  DW_ASSIGN_OR_RETURN(Chain opened, open_chain(store, options.accept));
  chain.emplace(std::move(opened));
  const std::string run = state ? state->replica.run : unfinished ? unfinished->run : chain->run();
  if (run != chain->run()) {
    return base_mismatch(layout.root.string() + ": belongs to run " + run + ", " + store->url() +
                         " holds run " + chain->run());
  }
  if (options.heartbeat) {
    DW_ASSIGN_OR_RETURN(const std::string id, replica_id(layout.own()));
    beat = std::make_unique<ReplicaBeat>(
        store, options.name.empty() ? default_name(resolved(layout.root), id) : options.name, id);
    if (state) beat->holds(state->replica, state->replica.serving);
  }
  return {};
}

Status ReplicaCore::check_folder() const {
  if (lock->is_at(layout.lock())) return {};
  return io_error(layout.root.string() +
                  ": the folder was removed or replaced while it was in use");
}

// The folder, with its lock, was removed or replaced: another process may be using it.
Status ReplicaCore::keep_folder() {
  const Status status = check_folder();
  if (status.ok()) return {};
  log_event(LogLevel::kWarning, "replica.folder_replaced", {{"local", layout.root}});
  lock.reset();
  unsettled.reset();
  pending.reset();
  state.reset();
  shown.reset();
  damage.clear();
  const Status opened = open_folder();
  if (!lock) lock.emplace(LocalLock::none());
  if (opened.ok() && state && state->replica.run != chain->run()) {
    return base_mismatch(layout.root.string() + ": belongs to run " + state->replica.run);
  }
  if (beat) beat->holds(state ? std::optional<Identity>(state->replica) : std::nullopt, {});
  return opened;
}

Status ReplicaCore::check_link() const {
  const fs::path expected = layout.version(state->replica.version).filename();
  std::error_code error;
  const fs::path target = fs::read_symlink(layout.current(), error);
  if (!error && target == expected) return {};
  const std::string place = layout.current().string();
  if (!is_there(layout.current())) return base_mismatch(place + ": the link is gone");
  if (error) return invalid_argument(place + ": is not a link to a version's folder; move it away");
  return base_mismatch(place + ": points to " + target.string() + ", expected " +
                       expected.string());
}

// Removes what an earlier process was preparing, and finds the step that it had begun to carry out.
Status ReplicaCore::recover() {
  remove_temporaries(layout.own());
  DW_RETURN_IF_ERROR(remove_tree(layout.work()));
  DW_RETURN_IF_ERROR(remove_tree(layout.new_journal()));
  DW_SYNC_POINT("replica: leftovers removed");
  Result<std::optional<LocalState>> read = read_local_state(layout.state());
  state_lost = !read.ok() && read.status().code() == Code::kCorruption;
  state_gone = false;
  if (state_lost) {
    damage = read.status().message();
  } else {
    DW_ASSIGN_OR_RETURN(state, std::move(read));
  }
  if (state) shown = state->replica;
  unfinished.reset();
  if (is_there(layout.journal())) {
    Result<JournalRecord> record = read_journal_record(layout.journal());
    const Code code = record.status().code();
    if (code == Code::kIo || code == Code::kOutOfMemory) return record.status();
    const bool recorded = record.ok() && state && !state->replica.patching_to &&
                          state->replica.version == record->version &&
                          state->replica.manifest == record->manifest;
    if (recorded) return drop_journal();
    if (record.ok()) {
      unfinished = std::move(*record);
    } else {
      damage = record.status().message();
    }
  } else if (state && state->replica.patching_to) {
    damage = layout.root.string() + ": a patch to version " +
             std::to_string(*state->replica.patching_to) + " was begun and its journal is gone";
  }
  return {};
}

Result<std::optional<uint64_t>> ReplicaCore::head() {
  return find_head(shown ? std::optional(shown->version) : std::nullopt);
}

Replica::Replica(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Replica::~Replica() = default;
Replica::Replica(Replica&&) noexcept = default;
Replica& Replica::operator=(Replica&&) noexcept = default;

Result<Replica> Replica::open(std::shared_ptr<Store> store, fs::path local,
                              ReplicaOptions options) {
  if (local.empty()) return invalid_argument("a replica needs a folder");
  if (looks_like_store(local)) {
    return invalid_argument(local.string() + ": is a store, not a folder for a replica");
  }
  auto impl = std::make_unique<Impl>(std::move(store), std::move(local), std::move(options));
  DW_RETURN_IF_ERROR(impl->open());
  return Replica(std::move(impl));
}

const std::optional<ReplicaState>& Replica::state() const noexcept { return impl_->shown; }
Result<std::optional<uint64_t>> Replica::head() { return impl_->head(); }
uint64_t Replica::prepare_ahead() { return impl_->prepare_ahead(); }
Result<PullReport> Replica::prepare(const PullGoal& goal) { return impl_->prepare(goal); }
Result<PullReport> Replica::commit() { return impl_->commit(); }
Status Replica::settle(PullReport* report) { return impl_->settle(report); }

Result<PullReport> Replica::pull(const PullGoal& goal) {
  bool recovered = false;
  while (true) {
    DW_ASSIGN_OR_RETURN(PullReport report, prepare(goal));
    const bool resumed = report.recovered;
    if (impl_->pending) {
      DW_ASSIGN_OR_RETURN(report, commit());
      const Status settled = settle(&report);
      // If files differ from the result of an old journal, the next round repairs them.
      if (!settled.ok() && !(resumed && settled.code() == Code::kBaseMismatch)) return settled;
    }
    report.recovered = recovered || resumed;
    if (!resumed) return report;
    recovered = true;
  }
}

Status Replica::set_serving(const std::optional<Identity>& serving,
                            std::optional<double> pause_seconds, std::string engines) {
  constexpr double kLongest = 1e6;
  if (pause_seconds && !(*pause_seconds >= 0 && *pause_seconds < kLongest)) {
    return invalid_argument("pause_seconds: expected 0 to " + std::to_string(int(kLongest)));
  }
  DW_RETURN_IF_ERROR(settle());
  if (!impl_->state) return invalid_argument("a replica that holds no version cannot serve one");
  LocalState next = *impl_->state;
  next.replica.serving = serving;
  next.replica.engines = std::move(engines);
  DW_RETURN_IF_ERROR(impl_->save(std::move(next)));
  if (!impl_->beat) return {};
  if (pause_seconds) impl_->beat->paused(uint64_t(*pause_seconds * 1e6));
  impl_->beat->holds(impl_->state->replica, serving);
  return {};
}

}  // namespace deltawire
