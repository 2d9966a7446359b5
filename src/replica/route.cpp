#include "replica/route.h"

#include <algorithm>

#include "base/log.h"
#include "format/checkpoint_files.h"
#include "replica/limits.h"
#include "transfer/fetch.h"

namespace deltawire {

Result<Route> plan_route(const Chain& chain, const std::optional<Held>& held,
                         const AttemptGoal& goal, const std::optional<VersionRecord>& seen,
                         const std::set<std::string>& avoid, PullReport* report) {
  const uint64_t version = goal.version;
  const bool known = seen && seen->manifest.version == version;
  Result<Plan> planned = plan_catch_up(chain, held, version, known ? &*seen : nullptr, avoid);
  if (planned.status().code() == Code::kBaseMismatch && !goal.named) {
    return another_history(planned.status());
  }
  DW_ASSIGN_OR_RETURN(Plan plan, std::move(planned));
  static_cast<Identity&>(*report) = plan.target.identity();
  Route route{std::move(plan.target), std::move(plan.schema), std::move(plan.hops)};
  DW_RETURN_IF_ERROR(check_target(route.target()));
  const auto whole = std::find_if(route.hops.rbegin(), route.hops.rend(),
                                  [](const Hop& hop) { return !hop.base; });
  route.from_whole = whole != route.hops.rend();
  if (route.from_whole) route.hops.erase(route.hops.begin(), whole.base() - 1);
  if (!held && !route.from_whole) {
    return internal_error("a plan from nothing that begins with a delta");
  }
  report->whole = route.from_whole;
  report->num_hops = route.hops.size();
  report->num_tensors = route.schema.tensors.size();
  report->weights_bytes = weights_bytes(route.schema);
  report->bytes = 0;
  for (const Hop& hop : route.hops) {
    for (const PartRef& part : hop.parts) {
      const std::string name = part.name.substr(part.name.rfind('/') + 1);
      if (hop.base || is_weights_file(name)) report->bytes += part.size_bytes;
    }
  }
  return route;
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
