// Chain::wait_until_held()
#include <algorithm>
#include <chrono>
#include <thread>

#include "base/clock.h"
#include "chain/chain.h"

namespace deltawire {
namespace {

constexpr double kFirstPause = 0.005, kLongestPause = 0.5;  // seconds

// Why a replica holds neither the version nor a later one; empty: it does.
std::string missing(const Heartbeat& beat, const Identity& wanted) {
  const std::string failed = beat.error.empty() ? "" : ", failed: " + beat.error;
  if (!beat.held) {
    if (beat.lease) return "is fetching version " + std::to_string(beat.lease->to);
    return "holds no version" + failed;
  }
  const Identity& held = *beat.held;
  if (held.run != wanted.run) return "holds run " + held.run + failed;
  if (held.version < wanted.version) {
    return "is at version " + std::to_string(held.version) + failed;
  }
  if (held.version > wanted.version || held.manifest == wanted.manifest) return {};
  return "holds another version " + std::to_string(held.version) + failed;
}

std::vector<Holder> holders(const std::vector<ListedHeartbeat>& beats, const Identity& wanted) {
  std::vector<Holder> found;
  for (const ListedHeartbeat& listed : beats) {
    if (listed.is_gone()) continue;
    if (listed.heartbeat.ok()) {
      const Heartbeat& beat = *listed.heartbeat;
      found.push_back({beat.name, beat.held, missing(beat, wanted)});
    } else {
      found.push_back({listed.object.name, {}, listed.heartbeat.status().to_string()});
    }
  }
  return found;
}

}  // namespace

Result<HoldersReport> Chain::wait_until_held(const HoldersGoal& goal) const {
  const double begin = steady_seconds(), end = begin + goal.timeout_seconds;
  std::optional<uint64_t> number = goal.version;
  if (!number) {
    DW_ASSIGN_OR_RETURN(number, head());
    if (!number) return not_found(store().url() + ": no version was published yet");
  }
  DW_ASSIGN_OR_RETURN(const VersionRecord record, version(*number));
  HoldersReport report;
  report.version = record.identity();
  for (double pause = kFirstPause;; pause = std::min(2 * pause, kLongestPause)) {
    DW_ASSIGN_OR_RETURN(const std::vector<ListedHeartbeat> beats, replicas());
    report.replicas = holders(beats, report.version);
    report.num_holding =
        uint64_t(std::count_if(report.replicas.begin(), report.replicas.end(),
                               [](const Holder& one) { return one.missing.empty(); }));
    report.complete = report.num_holding >= goal.replicas.value_or(report.replicas.size());
    const double now = steady_seconds();
    report.seconds = now - begin;
    if (report.complete || now >= end) return report;
    if (!sleep_unless(std::min(end - now, pause),
                      [&] { return goal.cancelled && goal.cancelled(); })) {
      return cancelled("stopped on request");
    }
  }
}

}  // namespace deltawire
