#include "cli/bridge/slime_engines.h"

#include <thread>

#include "cli/context.h"
#include "cli/notify_options.h"
#include "dialect/slime/slime_index.h"
#include "notify/engine.h"

namespace deltawire::cli {
namespace {

namespace fs = std::filesystem;

// All engines at once, while they go on with the version that they have.
std::vector<Status> pull_all(const std::vector<std::string>& urls, const EngineOptions& options,
                             const PullWeights& request) {
  std::vector<Status> outcomes(urls.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < urls.size(); ++i) {
    threads.emplace_back([&, i] { outcomes[i] = call_pull_weights(urls[i], options, request); });
  }
  for (std::thread& thread : threads) thread.join();
  return outcomes;
}

}  // namespace

void add_slime_engine_options(Command* verb, SlimeEngineOptions* options) {
  Option* const notify =
      verb->add_option("--notify", options->urls,
                       "tell this engine of slime (its SGLang): pull, pause, reload, continue; may "
                       "be repeated. A key comes from DELTAWIRE_ENGINE_API_KEY")
          ->type_name("URL")
          ->repeatable();
  verb->add_option("--notify-checkpoint", options->checkpoint,
                   "with --notify: slime's --update-weight-local-checkpoint-dir, the folder that "
                   "engines pull into; not needed with --full")
      ->type_name("DIR")
      ->needs(notify);
  add_call_limits(verb, "--notify", "an engine", &options->limits);
}

std::vector<EngineOutcome> tell_slime_engines(const SlimeEngineOptions& options,
                                              const std::vector<std::string>& urls,
                                              const fs::path& source, uint64_t version) {
  const EngineOptions calls = engine_options(options.limits);
  std::vector<Status> pulled(urls.size());
  if (!options.checkpoint.empty()) {
    pulled = pull_all(urls, calls, {options.checkpoint, source.string(), version});
  }
  const fs::path checkpoint = options.checkpoint.empty() ? source / slime::folder_name(version)
                                                         : fs::path(options.checkpoint);
  std::vector<EngineOutcome> outcomes(urls.size());
  Notifier notifier(was_interrupted);
  std::vector<size_t> told;
  for (size_t i = 0; i < urls.size(); ++i) {
    outcomes[i].engine = "sglang=" + urls[i];
    outcomes[i].resumed = true;  // it was not paused yet
    auto engine = make_engine(outcomes[i].engine, calls);
    outcomes[i].status = pulled[i].ok() ? engine.status() : pulled[i];
    if (!outcomes[i].status.ok()) continue;
    notifier.add(std::move(*engine));
    told.push_back(i);
  }
  Change change;
  change.version = version;
  change.in_place = false;
  NotifyOutcome all = notifier.around(change, [&]() -> Result<fs::path> { return checkpoint; });
  for (size_t k = 0; k < told.size(); ++k) {
    outcomes[told[k]] = std::move(all.engines[k]);
    EngineOutcome& one = outcomes[told[k]];
    if (one.status.ok() && !all.patch.ok()) one.status = all.patch;
  }
  return outcomes;
}

}  // namespace deltawire::cli
