// How a replica in a folder begins a pull: it resumes interrupted steps, recovers a lost state and
// repairs the link. The rest is common to all replicas.
#include <algorithm>

#include "base/folder.h"
#include "base/log.h"
#include "replica/file_sink.h"
#include "replica/impl.h"
#include "replica/recognise.h"

namespace deltawire {

// Takes up the interrupted step, which needs no fetch. False: there is none, or it cannot be
// carried out.
Result<bool> ReplicaCore::resume(PullReport* report) {
  if (!unfinished) return false;
  Pending step;
  step.record = *unfinished;
  step.resumed = true;
  if (step.record.kind == JournalKind::kPatch) {
    Result<OpenPatch> patch = open_patch(layout, step.record, &pool);
    const Code code = patch.status().code();
    if (code == Code::kIo || code == Code::kOutOfMemory) return patch.status();
    if (!patch.ok()) {
      give_up(patch.status());
      return false;
    }
    step.patch.emplace(std::move(*patch));
  }
  static_cast<Identity&>(*report) = step.record;
  if (state) report->from = state->replica.version;
  report->num_tensors = step.record.target.digests.size();
  report->recovered = report->changed = true;
  report->path = folder_of(step.record);
  step.report = *report;
  pending.emplace(std::move(step));
  return true;
}

Result<PullReport> ReplicaCore::prepare(const PullGoal& goal) {
  DW_RETURN_IF_ERROR(keep_folder());
  const Status status = settle(nullptr);
  // Files that were edited after the patch are repaired like any other damage.
  if (!status.ok() && (damage.empty() || !options.repair)) return status;
  pending.reset();
  PullReport report;
  DW_ASSIGN_OR_RETURN(const bool resumed, resume(&report));
  if (resumed) return report;
  return prepare_pull(goal);
}

// Needs no fetch: the files themselves identify the version.
Status ReplicaCore::recover_lost_state(uint64_t newest, PullReport* report) {
  DW_ASSIGN_OR_RETURN(
      std::optional<LocalState> found,
      find_lost_state(*chain, layout, options.copy_on_write.has_value(), newest, &pool));
  if (!found) return {};
  log_event(LogLevel::kWarning, "replica.repair",
            {{"local", layout.root}, {"reason", damage}, {"version", found->replica.version}});
  report->repaired = true;
  report->repair_reason = std::exchange(damage, {});
  state_lost = state_gone = false;
  return save(std::move(*found));
}

Status ReplicaCore::recognise(const PullGoal& goal, PullReport* report, PhaseClock* clock) {
  if (state_lost && options.repair) {
    clock->begin("recognise");
    const uint64_t newest = std::max(goal.version.value_or(0), goal.head.value_or(0));
    DW_RETURN_IF_ERROR(recover_lost_state(newest, report));
  }
  if (!state_gone) return {};
  return invalid_argument(damage +
                          (options.repair ? " that match none of the newest versions: " : ": ") +
                          "move them away, or give another folder");
}

Result<std::optional<Held>> ReplicaCore::held_version() const {
  if (!state) return std::optional<Held>();
  DW_ASSIGN_OR_RETURN(const Digest manifest,
                      parse_digest(DigestKind::kSha256, state->replica.manifest));
  return std::optional(Held{state->replica.version, manifest});
}

// A wrong link is repaired together with the next step.
Status ReplicaCore::check_usable(uint64_t, PullReport* report) {
  relink = false;
  if (!damage.empty()) return base_mismatch(damage);
  if (!state || !options.copy_on_write) return {};
  Status link = check_link();
  relink = link.code() == Code::kBaseMismatch && options.repair;
  if (!relink) return link;
  note_repair(layout.root.string(), link.message(), report);
  return {};
}

// With copy-on-write versions are built from all parts, so there is nothing to decode early.
Result<HeldNow> ReplicaCore::held_now() const {
  HeldNow now;
  now.memory = share_stage_memory(options.limits.memory_bytes);
  if (!state || options.copy_on_write || unfinished || !damage.empty()) return now;
  DW_ASSIGN_OR_RETURN(now.files, open_own_checkpoint(layout.root, state->weight_names()));
  for (const CheckpointTensor& tensor : now.files->tensors()) now.tensors.push_back(tensor.view);
  return now;
}

std::unique_ptr<CatchUpSink> ReplicaCore::make_sink(Attempt* attempt) {
  return std::make_unique<FileSink>(this, attempt);
}

void ReplicaCore::abandon() {
  pending.reset();
  (void)remove_tree(layout.work());
  (void)remove_tree(layout.new_journal());
  if (beat && state) beat->holds(state->replica, state->replica.serving);
}

void ReplicaCore::keep_report(PullReport* report) {
  report->changed = pending.has_value();
  if (state) report->path = layout.checkpoint(state->copy_on_write, state->replica.version);
  if (pending) pending->report = *report;
}

}  // namespace deltawire
