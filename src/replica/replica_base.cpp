#include "replica/replica_base.h"

#include "base/guard.h"
#include "base/log.h"
#include "chain/names.h"
#include "replica/catch_up.h"
#include "replica/plan_pull.h"

namespace deltawire {

Result<std::optional<uint64_t>> ReplicaBase::find_head(const std::optional<uint64_t>& known) {
  DW_ASSIGN_OR_RETURN(Chain::Newest newest, find_newest(*chain, known));
  seen_ = std::move(newest.record);
  return newest.version;
}

// Stages the version, or nothing if there is nothing to do. Avoids damaged and missing parts.
Status ReplicaBase::attempt(const AttemptGoal& goal, const std::optional<Held>& held,
                            PullReport* report, PhaseClock* clock) {
  return go_around_bad_parts(
      rules_.repair, rules_.place, report, [&](const std::set<std::string>& avoid) {
        Attempt own{goal, *report, *clock, PullProgress(rules_.progress, *report)};
        const std::unique_ptr<CatchUpSink> sink = make_sink(&own);
        return catch_up({*chain, held, seen_, &pool, beat.get()}, avoid, &own, sink.get());
      });
}

// Starts from nothing. The history of the held version still applies.
Status ReplicaBase::start_again(const AttemptGoal& goal, PullReport* report, PhaseClock* clock) {
  DW_ASSIGN_OR_RETURN(const std::optional<Held> bound, bound_to());
  if (bound && !goal.named) DW_RETURN_IF_ERROR(check_history(*chain, *bound));
  if (!report->repair_reason.empty()) {
    log_event(LogLevel::kWarning, "replica.repair",
              {{"local", rules_.place}, {"reason", report->repair_reason}});
  }
  Status status = attempt(goal, {}, report, clock);
  report->repaired = report->repaired || !report->repair_reason.empty();
  // Nothing held was used, so the store is at fault.
  if (status.code() == Code::kBaseMismatch) return corruption(status.message());
  return status;
}

// Decodes an object that was sent ahead and returns the number of tensors. Errors matter only if
// the version is committed, so they are ignored.
uint64_t ReplicaBase::num_ahead(const SentObject& object, std::optional<HeldNow>* held) {
  const std::optional<AttemptFolder> folder = attempt_folder(object.name);
  const Result<std::optional<Held>> version = held_version();
  const bool next =
      folder && version.ok() && *version && folder->version == (*version)->version + 1;
  if (!next || object.body->size() > ahead.memory_bytes()) return 0;
  uint64_t count = 0;
  (void)guard_memory("decoding", [&]() -> Status {
    if (!*held) {
      DW_ASSIGN_OR_RETURN(HeldNow now, held_now());
      held->emplace(std::move(now));
    }
    if ((*held)->tensors.empty()) return {};
    std::vector<uint8_t> part(size_t(object.body->size()));
    DW_RETURN_IF_ERROR(object.body->read(0, part));
    count = ahead.add(folder->version, part, **held, &pool);
    return {};
  });
  return count;
}

uint64_t ReplicaBase::prepare_ahead() {
  uint64_t count = 0;
  std::optional<HeldNow> held;
  PushSource* const pushed = push_source_of(*store);
  while (pushed != nullptr) {
    const std::vector<SentObject> sent = pushed->sent_ahead(seen_ahead_);
    if (sent.empty()) break;
    for (const SentObject& object : sent) {
      seen_ahead_ = object.number;
      count += num_ahead(object, &held);
    }
  }
  return count;
}

Result<PullReport> ReplicaBase::prepare_pull(PullGoal goal) {
  PullReport report;
  report.run = chain->run();
  const uint64_t taken = ahead.num_taken();
  PhaseClock clock(&report);
  clock.begin("head");
  if (!goal.head && (!goal.version || is_lost())) {
    DW_ASSIGN_OR_RETURN(goal.head, head());
  }
  DW_RETURN_IF_ERROR(recognise(goal, &report, &clock));
  DW_ASSIGN_OR_RETURN(const std::optional<Held> held, held_version());
  DW_ASSIGN_OR_RETURN(const std::optional<Held> bound, bound_to());
  if (held) report.from = held->version;
  DW_ASSIGN_OR_RETURN(
      const uint64_t version,
      choose_version(*chain, goal, goal.head, bound ? std::optional(bound->version) : std::nullopt,
                     rules_.at_least));
  const bool named = goal.version.has_value();
  Status status = check_usable(version, &report);
  const bool from_nothing = status.ok() && !held;
  if (status.ok() && held) {
    status = guard_memory("catching up", [&] {
      return attempt({version, false, named}, held, &report, &clock);
    });
  }
  const bool mismatch = status.code() == Code::kBaseMismatch;
  if (mismatch) report.repair_reason = status.message();
  if (mismatch ? rules_.repair : from_nothing) {
    status = guard_memory("catching up", [&] {
      return start_again({version, true, named}, &report, &clock);
    });
  }
  ahead.drop_up_to(version);
  report.num_ahead = ahead.num_taken() - taken;
  if (!status.ok()) {
    abandon();
    if (beat && status.code() != Code::kCancelled) beat->failed(status);
    return status;
  }
  clock.end();
  report.seconds = clock.now();
  keep_report(&report);
  return report;
}

}  // namespace deltawire
