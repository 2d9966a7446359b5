#include "cli/slime/push.h"

#include <fmt/format.h>

#include <thread>

#include "base/log.h"
#include "bridge/slime/acks.h"
#include "bridge/slime/source.h"
#include "cli/notify_options.h"
#include "cli/options.h"
#include "deltawire/store.h"
#include "dialect/dialect.h"
#include "engine/http.h"
#include "engine/pull_weights.h"
#include "store/directory_store.h"

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

// Those that pulled are paused, reload and go on.
Status reload_pulled(const std::vector<std::string>& urls, const EngineOptions& options,
                     const std::vector<Status>& pulled, const fs::path& checkpoint,
                     uint64_t version, std::vector<EngineOutcome>* outcomes) {
  Notifier notifier(was_interrupted);
  std::vector<size_t> told;
  for (size_t i = 0; i < urls.size(); ++i) {
    EngineOutcome& one = outcomes->emplace_back();
    one.engine = "sglang=" + urls[i];
    one.status = pulled[i];
    one.resumed = true;  // it was never paused
    if (!pulled[i].ok()) continue;
    DW_ASSIGN_OR_RETURN(auto engine, make_engine("sglang=" + urls[i], options));
    notifier.add(std::move(engine));
    told.push_back(i);
  }
  if (told.empty()) return {};
  Change change;
  change.version = version;
  change.in_place = false;
  NotifyOutcome all = notifier.around(change, [&]() -> Result<fs::path> { return checkpoint; });
  for (size_t k = 0; k < told.size(); ++k) (*outcomes)[told[k]] = std::move(all.engines[k]);
  return all.patch;
}

Result<std::vector<std::string>> check_urls(const std::string& option,
                                            const std::vector<std::string>& urls) {
  std::vector<std::string> checked;
  for (const std::string& url : urls) {
    auto one = check_engine_url(url);
    if (!one.ok()) return std::move(one).status().at(option);
    checked.push_back(*one);
  }
  return checked;
}

Status push_to(const std::vector<std::string>& urls, const PushOptions& options,
               const fs::path& source, const fs::path& local, uint64_t version,
               PushOutcome* outcome) {
  DW_ASSIGN_OR_RETURN(SlimeAcks acks, read_slime_acks(source));
  for (const std::string& url : urls) acks.try_emplace(url, 0);
  DW_ASSIGN_OR_RETURN(const auto forgotten, check_urls("--forget-engine", options.forget));
  for (const std::string& url : forgotten) acks.erase(url);
  DW_RETURN_IF_ERROR(write_slime_acks(source, acks));
  const EngineOptions calls = engine_options(options.limits);
  std::vector<Status> pulled(urls.size());
  if (!local.empty()) {
    pulled = pull_all(urls, calls, {local.string(), source.string(), version});
  }
  const fs::path checkpoint = local.empty() ? source / slime_version_name(version) : local;
  DW_RETURN_IF_ERROR(reload_pulled(urls, calls, pulled, checkpoint, version, &outcome->engines));
  for (size_t i = 0; i < urls.size(); ++i) {
    if (outcome->engines[i].reloaded) acks[urls[i]] = version;
  }
  DW_RETURN_IF_ERROR(write_slime_acks(source, acks));
  for (const auto& [url, has] : acks) {
    if (has < version) outcome->behind.push_back(url);
  }
  return {};
}

}  // namespace

void add_push_options(Command* verb, PushOptions* options) {
  verb->add_option("--engine", options->engines,
                   "tell this SGLang engine: pull, pause, reload, continue; may be repeated. A key "
                   "comes from DELTAWIRE_ENGINE_API_KEY")
      ->type_name("URL")
      ->repeatable();
  verb->add_option("--forget-engine", options->forget,
                   "do not wait for this one any more; may be repeated")
      ->type_name("URL")
      ->repeatable();
  verb->add_flag("--remove-acknowledged", options->remove_acknowledged,
                 "remove versions that every engine has, but for the newest");
  add_call_limits(verb, "--engine", "an engine", &options->limits);
}

PushOutcome push_version(const PushOptions& options, const fs::path& source, const fs::path& local,
                         const std::string& dialect, uint64_t version) {
  PushOutcome outcome;
  std::error_code error;
  const fs::path from = fs::absolute(source, error).lexically_normal();
  const fs::path to = local.empty() ? local : fs::absolute(local, error).lexically_normal();
  const auto urls = check_urls("--engine", options.engines);
  if (!urls.ok()) {
    outcome.status = urls.status();
    return outcome;
  }
  outcome.status = push_to(*urls, options, from, to, version, &outcome);
  for (const EngineOutcome& engine : outcome.engines) {
    if (outcome.status.ok()) outcome.status = engine.status;
  }
  if (!options.remove_acknowledged) return outcome;
  DirectoryStore store(from);
  const auto acks = read_slime_acks(from);
  const auto versions = find_dialect(dialect)->versions(store);
  if (!acks.ok() || !versions.ok()) return outcome;
  auto removed = remove_acknowledged(from, *versions, *acks);
  if (removed.ok()) outcome.removed = std::move(*removed);
  if (!removed.ok() && outcome.status.ok()) outcome.status = removed.status();
  return outcome;
}

nlohmann::ordered_json push_json(const PushOutcome& outcome) {
  return {{"engines", to_json(outcome.engines)},
          {"behind", outcome.behind},
          {"removed", outcome.removed}};
}

void say_push(const Context& context, const PushOutcome& outcome) {
  for (const EngineOutcome& engine : outcome.engines) {
    const std::string said = engine.status.ok()
                                 ? fmt::format("serves version {}", version_of(engine.serving).value_or(0))
                                 : shown_path(engine.status.to_string());
    context.say(fmt::format("engine    {}: {}", engine.engine, said));
  }
  for (const std::string& url : outcome.behind) {
    context.say(
        fmt::format("behind    {}: what it misses is kept, and sent by the next push", url));
  }
  for (const uint64_t version : outcome.removed) {
    context.say(fmt::format("removed   version {}: every engine has it", version));
  }
}

}  // namespace deltawire::cli
