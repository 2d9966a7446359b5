#include "replica/plan_pull.h"

#include <algorithm>

#include "base/log.h"
#include "chain/keys.h"
#include "format/checkpoint_files.h"
#include "format/record.h"
#include "replica/limits.h"
#include "tensor/text.h"
#include "transfer/fetch.h"

namespace deltawire {
namespace {

// The store may be unavailable or hold another run.
Status check_run_is_there(const Chain& chain, const std::string& what_for) {
  const Result<Chain> now = Chain::open(chain.shared_store(), {});
  if (now.ok() && now->run() == chain.run()) return {};
  if (now.ok()) {
    return base_mismatch(chain.store().url() + ": holds run " + now->run() +
                         " now instead of run " + chain.run() + what_for);
  }
  if (now.status().code() != Code::kNotFound) return now.status();
  return not_found(chain.store().url() + ": holds no run any more" + what_for +
                   "; check that it is mounted and that it is the right store");
}

Status lost_versions(const Chain& chain, const std::optional<uint64_t>& head, uint64_t held) {
  const std::string kept = std::to_string(held);
  DW_RETURN_IF_ERROR(check_run_is_there(chain, ", of which version " + kept + " is held"));
  const std::string first = std::to_string(head ? *head + 1 : 0);
  std::string message = chain.store().url() + ": ";
  message += head ? "its newest version is " + std::to_string(*head) : "it has no version at all";
  message += ", but version " + kept + " is held: the store has lost ";
  message += first == kept ? "version " + kept : "versions " + first + " to " + kept;
  message += ". The replica keeps what it holds";
  if (head) message += "; to go back, pull version " + std::to_string(*head) + " by its number";
  return not_found(std::move(message));
}

}  // namespace

Result<Chain> open_chain(const std::shared_ptr<Store>& store, const Accept& accept) {
  const std::string& run = accept.run;
  if (!run.empty() && !is_run_id(run)) {
    return invalid_argument("run " + quote(run) + ": a run's id has 32 hex digits");
  }
  DW_ASSIGN_OR_RETURN(ChainKeys options, read_keys({.trust = accept.trust}));
  DW_ASSIGN_OR_RETURN(Chain chain, open_with_keys(store, std::move(options)));
  if (run.empty() || run == chain.run()) return chain;
  return base_mismatch(store->url() + ": holds run " + chain.run() + ", but the requested run is " +
                       run);
}

Result<Chain::Newest> find_newest(const Chain& chain, const std::optional<uint64_t>& held) {
  Chain::Newest newest;
  if (held) {
    DW_ASSIGN_OR_RETURN(newest, chain.newest_after(*held));
  } else {
    DW_ASSIGN_OR_RETURN(newest.version, chain.head());
  }
  if (!newest.version && !held) DW_RETURN_IF_ERROR(check_run_is_there(chain, ""));
  return newest;
}

Result<uint64_t> choose_version(const Chain& chain, const PullGoal& goal,
                                const std::optional<uint64_t>& head,
                                const std::optional<uint64_t>& held, uint64_t at_least) {
  const std::optional<uint64_t>& limit = goal.version ? goal.version : goal.until;
  if (limit && *limit < at_least) {
    return invalid_argument("version " + std::to_string(*limit) +
                            " was requested, but the oldest accepted version is " +
                            std::to_string(at_least));
  }
  if (goal.version) return *goal.version;
  if (held && (!head || *head < *held)) return lost_versions(chain, head, *held);
  if (!head) return not_found(chain.store().url() + ": nothing was published yet");
  if (*head < at_least) {
    return not_found(chain.store().url() + ": its newest version is " + std::to_string(*head) +
                     ", but the oldest accepted version is " + std::to_string(at_least));
  }
  return std::max(held.value_or(0), goal.until ? std::min(*head, *goal.until) : *head);
}

Status another_history(const Status& planned) {
  return corruption(planned.message() +
                    "; the chain was rewritten. The replica keeps what it holds; to switch to the "
                    "new history, pull one of its versions by number");
}

Status check_history(const Chain& chain, const Held& held) {
  // Try the record of the held version, then that of its successor.
  for (const uint64_t version : {held.version, held.version + 1}) {
    const Result<VersionRecord> record = chain.version(version);
    if (record.ok()) {
      const std::optional<Digest> digest =
          version == held.version ? std::optional(record->digest) : record->manifest.parent;
      if (!digest || *digest == held.manifest) return {};
      return another_history(not_this_chain(chain, held, *digest));
    }
    const Code code = record.status().code();
    if (code != Code::kNotFound && code != Code::kCorruption && code != Code::kUnsupported) {
      return record.status();
    }
  }
  return {};
}

Result<Plan> plan_pull(const Chain& chain, const std::optional<Held>& held, const AttemptGoal& goal,
                       const std::optional<VersionRecord>& seen, const std::set<std::string>& avoid,
                       PullReport* report) {
  const uint64_t version = goal.version;
  const bool known = seen && seen->manifest.version == version;
  Result<Plan> planned = plan_catch_up(chain, held, version, known ? &*seen : nullptr, avoid);
  if (planned.status().code() == Code::kBaseMismatch && !goal.named) {
    return another_history(planned.status());
  }
  DW_ASSIGN_OR_RETURN(Plan plan, std::move(planned));
  static_cast<Identity&>(*report) = plan.target.identity();
  DW_RETURN_IF_ERROR(check_target(target_of(plan)));
  const auto whole =
      std::find_if(plan.hops.rbegin(), plan.hops.rend(), [](const Hop& hop) { return !hop.base; });
  report->whole = whole != plan.hops.rend();
  if (report->whole) plan.hops.erase(plan.hops.begin(), whole.base() - 1);
  if (!held && !report->whole) {
    return internal_error("a plan from nothing that begins with a delta");
  }
  report->num_hops = plan.hops.size();
  report->num_tensors = plan.schema.tensors.size();
  report->weights_bytes = weights_bytes(plan.schema);
  report->bytes = 0;
  for (const Hop& hop : plan.hops) {
    for (const PartRef& part : hop.parts) {
      const std::string name = part.name.substr(part.name.rfind('/') + 1);
      if (hop.base || is_weights_file(name)) report->bytes += part.size_bytes;
    }
  }
  return plan;
}

void note_repair(const std::string& place, std::string reason, PullReport* report) {
  log_event(LogLevel::kWarning, "replica.repair", {{"local", place}, {"reason", reason}});
  report->repaired = true;
  report->repair_reason = std::move(reason);
}

Status go_around_bad_parts(bool repair, const std::string& place, PullReport* report,
                           const std::function<Attempted(const std::set<std::string>&)>& attempt) {
  constexpr size_t kMostBadParts = 16;
  std::set<std::string> avoid;
  Status first;
  while (true) {
    report->num_changed = 0;
    Attempted own = attempt(avoid);
    Status& status = own.status;
    if (status.ok()) {
      if (!first.ok() && report->repair_reason.empty()) report->repair_reason = first.message();
      report->repaired = report->repaired || !first.ok();
      return status;
    }
    if (!own.bad_part) {
      return first.ok() || !is_damaged_or_gone(status) ? status : first;
    }
    if (!repair || avoid.size() == kMostBadParts) return status;
    log_event(LogLevel::kWarning, "replica.repair",
              {{"local", place}, {"reason", status.message()}});
    avoid.insert(*own.bad_part);
    if (first.ok()) first = std::move(status);
  }
}

}  // namespace deltawire
