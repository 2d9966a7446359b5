#include "cli/bridge/options.h"

#include <chrono>
#include <cstdlib>
#include <thread>

#include "base/log.h"
#include "cli/metrics/record.h"
#include "cli/options.h"
#include "cli/store_options.h"
#include "cli/verbs.h"
#include "replica/follow_watch.h"

namespace deltawire::cli {
namespace {

// What no later attempt can change: the command line, or a source that is not what it was.
bool ends_bridge(const Status& status) {
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

void sleep_bridge(double seconds) {
  const double end = now_seconds() + seconds;
  while (!was_interrupted() && now_seconds() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

}  // namespace

BridgeRange BridgeVerbOptions::range() const {
  return version ? BridgeRange{version, version} : BridgeRange{from, to};
}

void add_dialect(Command* verb, BridgeVerbOptions* options) {
  std::string known;
  std::vector<std::string> words;
  for (const DialectName& dialect : dialect_names()) {
    known += (known.empty() ? "" : ", ") + dialect.name + " (" + dialect.title + ")";
    words.push_back(dialect.name);
  }
  verb->add_option("DIALECT", options->dialect, known)->required()->offer(words);
}

void add_bridge_options(Command* verb, Context& context, BridgeVerbOptions* options) {
  Option* const one = add_version(verb, "--version", &options->version, "this version only");
  add_version(verb, "--from", &options->from, "from this version on")->excludes(one);
  add_version(verb, "--to", &options->to, "up to this version (default: the newest)")
      ->excludes(one);
  Option* const follow = verb->add_flag("--follow", options->follow,
                                        "go on with every version that appears, until interrupted");
  follow->excludes(one);
  add_seconds(verb, "--interval", &options->interval,
              "with --follow: time between two looks, varied by up to a fifth (default 5)", 0.01,
              86400)
      ->needs(follow);
  add_bytes(verb, "--memory", &options->memory_bytes,
            "tensors beside the model are kept in memory up to this, else in a file of the work "
            "folder (default: a quarter of the machine's memory)");
  add_log_options(verb, &options->log);
  add_threads(verb, context);
  add_store_options(verb, &options->store_options);
}

Result<std::filesystem::path> cache_folder(const std::string& name) {
  const char* const cache = std::getenv("XDG_CACHE_HOME");
  if (cache != nullptr && *cache != '\0') return std::filesystem::path(cache) / "deltawire" / name;
  const char* const home = std::getenv("HOME");
  if (home != nullptr && *home != '\0') {
    return std::filesystem::path(home) / ".cache/deltawire" / name;
  }
  return invalid_argument("neither XDG_CACHE_HOME nor HOME is set; say --work DIR");
}

Status BridgeLoop::run() const {
  unsigned failures = 0;
  while (!was_interrupted()) {
    const Result<bool> moved = round();
    if (moved.ok()) {
      failures = 0;
      if (done() || (!*moved && !options.follow)) return {};
      if (*moved) continue;
      const double pause = follow_jitter(options.interval);
      wait ? wait(pause) : sleep_bridge(pause);
      continue;
    }
    const Status& status = moved.status();
    if (status.code() == Code::kCancelled && was_interrupted()) {
      return options.follow ? Status() : status;
    }
    record_failure(operation, status);
    if (!options.follow || ends_bridge(status)) return status;
    reopen();
    const double pause = follow_backoff(failures++, options.interval);
    log_event(LogLevel::kError, "bridge.failed", {{"error", status}, {"retry_in_seconds", pause}});
    sleep_bridge(pause);
  }
  return options.follow ? Status() : cancelled("stopped on request");
}

}  // namespace deltawire::cli
