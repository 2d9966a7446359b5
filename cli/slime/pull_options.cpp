#include "cli/slime/pull_options.h"

#include <fmt/format.h>

#include <chrono>

#include "cli/options.h"
#include "cli/verbs.h"

namespace deltawire::cli {

void add_slime_pull_options(Command* verb, Context& context, SlimePullSettings* settings,
                            LogLevel usual) {
  verb->add_option("--base,--model-path", settings->base,
                   "the checkpoint that version 0 is: the engine's model path (default: what the "
                   "local folder holds)")
      ->type_name("CKPT");
  verb->add_option("--pre-read-hook", settings->pre_read_hook,
                   "a shell command to call before versions are read; DELTAWIRE_SOURCE_DIR and "
                   "DELTAWIRE_TARGET_VERSION say which")
      ->type_name("COMMAND");
  add_seconds(verb, "--timeout", &settings->timeout_seconds,
              "time for one pull (default 1800); after it nothing has changed", 0.1, 86400);
  add_receiver_flags(verb, &settings->receiver);
  add_threads(verb, context);
  add_log_options(verb, &settings->log, usual);
}

Result<SlimePulled> pull_within(const Context& context, const SlimePullSettings& settings,
                                const std::vector<std::filesystem::path>& roots,
                                const SlimePullRequest& request) {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                      std::chrono::duration<double>(settings.timeout_seconds));
  SlimePullOptions options;
  options.base = settings.base;
  options.roots = roots;
  const unsigned workers = settings.receiver.read_workers;
  options.threads = workers == 0 ? context.threads : workers;
  options.chunk_bytes = settings.receiver.chunk_bytes;
  options.pre_read_hook = settings.pre_read_hook;
  options.hook_timeout_seconds = settings.timeout_seconds;
  options.check = [&settings, end]() -> Status {
    DW_RETURN_IF_ERROR(check_interrupted());
    if (Clock::now() < end) return {};
    return unavailable(
        fmt::format("not done within {:g} s; nothing was changed", settings.timeout_seconds));
  };
  return slime_pull(request, options);
}

nlohmann::ordered_json slime_pull_json(const SlimePullReport& report) {
  nlohmann::ordered_json json = {{"version", report.version}};
  json["from"] = report.from ? nlohmann::ordered_json(*report.from) : nullptr;
  json["changed"] = report.changed;
  json["recovered"] = report.recovered;
  json["rebuilt"] = report.rebuilt;
  json["deltas"] = report.num_deltas;
  json["tensors"] = report.num_tensors;
  json["tied"] = report.num_tied;
  if (!report.reason.empty()) json["reason"] = report.reason;
  json["seconds"] = report.seconds;
  return json;
}

}  // namespace deltawire::cli
