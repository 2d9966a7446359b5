#include "cli/step_loop.h"

#include "base/log.h"
#include "cli/context.h"
#include "cli/metrics.h"
#include "cli/next_step.h"
#include "replica/follow_watch.h"

namespace deltawire::cli {
namespace {

// Failures that a retry cannot fix: of the command line, or of a source that has changed.
bool ends_loop(const Status& status) {
  switch (status.code()) {
    case Code::kInvalidArgument:
    case Code::kUnsupported:
    case Code::kConflict:
    case Code::kBaseMismatch:
    case Code::kInternal:
      return true;
    default:
      return false;
  }
}

}  // namespace

bool is_not_begun(const Status& status) {
  const auto says = [&](const char* words) {
    return status.message().find(words) != std::string::npos;
  };
  return status.code() == Code::kNotFound && says(": holds no run;") && !says("no such bucket");
}

Status StepLoop::run() const {
  unsigned failures = 0;
  bool waiting = false;
  const auto rest = [this](double seconds) { wait ? wait(seconds) : sleep_seconds(seconds); };
  while (!was_interrupted()) {
    const Result<bool> moved = round();
    if (moved.ok()) {
      failures = 0;
      if (done() || (!*moved && !follow)) return {};
      if (*moved) continue;
      rest(follow_jitter(interval));
      continue;
    }
    const Status& status = moved.status();
    // After a request to stop, a store that does not answer in time is not an error.
    const bool gave_up = status.code() == Code::kCancelled || status.code() == Code::kUnavailable;
    if (gave_up && was_interrupted()) return follow ? Status() : status;
    if (follow && is_not_begun(status)) {
      if (!waiting) {
        log_event(LogLevel::kInfo, operation + ".waiting",
                  {{"reason", "waiting for the first version"}});
      }
      waiting = true;
      reopen();
      rest(follow_jitter(interval));
      continue;
    }
    record_failure(operation, status);
    if (!follow || ends_loop(status)) return status;
    reopen();
    const double pause = follow_backoff(failures++, interval);
    log_retry(failed, status, operation, pause);
    rest(pause);
  }
  return follow ? Status() : cancelled("stopped on request");
}

}  // namespace deltawire::cli
