#include "notify/notifier.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "base/clock.h"
#include "base/command.h"
#include "base/log.h"
#include "notify/http.h"

namespace deltawire {
namespace {

// A command at the reload step, for engines with an interface of their own. Whether running it
// twice does harm only its author knows, so it is never tried again.
class ExecEngine final : public Engine {
 public:
  ExecEngine(std::string command, const EngineOptions& options)
      : command_(std::move(command)), limits_(options.limits), cancelled_(options.cancelled) {}

  std::string name() const override { return "exec=" + command_; }
  Status pause() override { return {}; }
  Status resume() override { return {}; }

  ReloadResult reload(const ReloadRequest& request) override {
    CommandOptions options;
    options.timeout_seconds = limits_.timeout_seconds;
    options.cancelled = cancelled_;
    options.environment = {{"DELTAWIRE_VERSION", std::to_string(request.version)},
                           {"DELTAWIRE_RUN", request.run},
                           {"DELTAWIRE_PATH", request.checkpoint.string()},
                           {"DELTAWIRE_PHASE", "reload"}};
    Status status = run_command(command_, options);
    // Conflict: it ran to its end and failed. Io: it never ran.
    const bool refused = status.code() == Code::kConflict || status.code() == Code::kIo;
    const Weights weights = status.ok() ? Weights::kNew
                            : refused   ? Weights::kOld
                                        : Weights::kUnknown;
    return {std::move(status).at(name()), weights, {}};
  }

 private:
  const std::string command_;
  const CallLimits limits_;
  const std::function<bool()> cancelled_;
};

// Prevents header injection: a key must not contain a line end.
Status check_api_key(const Secret& key) {
  const std::string& text = key.reveal();
  const bool plain =
      std::all_of(text.begin(), text.end(), [](char c) { return c >= ' ' && c <= '~'; });
  if (plain && (text.empty() || (text.front() != ' ' && text.back() != ' '))) return {};
  return invalid_argument(
      "DELTAWIRE_ENGINE_API_KEY holds a line end or another character that a key may not contain; "
      "was it read "
      "from a file with a line end after it?");
}

}  // namespace

Result<std::unique_ptr<Engine>> make_engine(std::string_view spec, const EngineOptions& options) {
  DW_RETURN_IF_ERROR(check_api_key(options.api_key));
  const size_t equals = spec.find('=');
  const std::string_view kind = spec.substr(0, equals);
  const std::string_view rest =
      equals == std::string_view::npos ? std::string_view() : spec.substr(equals + 1);
  // Not the rest, which may hold a password.
  const std::string place =
      "engine \"" + std::string(spec.substr(0, spec.find_first_of("=:"))) + "\"";
  if (kind != "sglang" && kind != "vllm" && kind != "exec") {
    return invalid_argument(place + ": expected sglang=URL, vllm=URL or exec=COMMAND");
  }
  if (rest.empty()) {
    return invalid_argument(place + ": what comes after \"" + std::string(kind) +
                            "=\" is missing: " + (kind == "exec" ? "a command" : "a URL"));
  }
  if (kind == "exec") {
    return std::unique_ptr<Engine>(std::make_unique<ExecEngine>(std::string(rest), options));
  }
  auto url = check_engine_url(rest);
  if (!url.ok()) return std::move(url).status().at("engine");
  if (!http_supported()) {
    return unsupported(place + ": this build of deltawire has no libcurl; use exec=COMMAND");
  }
  return kind == "sglang" ? make_sglang(*url, options) : make_vllm(*url, options);
}

namespace {

using Engines = std::vector<std::unique_ptr<Engine>>;

// Calls fn(i) for every engine on its own thread, so that a slow engine does not delay the others.
void for_each_engine(const Engines& engines, const std::function<void(size_t)>& fn) {
  std::vector<std::thread> threads;
  for (size_t i = 1; i < engines.size(); ++i) threads.emplace_back(fn, i);
  if (!engines.empty()) fn(0);
  for (std::thread& thread : threads) thread.join();
}

// Keeps the first failure; later ones may only follow from it.
void note(EngineOutcome* outcome, Status status) {
  if (status.ok() || !outcome->status.ok()) return;
  outcome->status = std::move(status);
}

void pause(Engine& engine, EngineOutcome* outcome) {
  Status status = engine.pause();
  outcome->paused = status.ok();
  if (!status.ok()) {
    log_event(LogLevel::kWarning, "engine.pause_failed",
              {{"engine", outcome->engine}, {"error", status}});
  }
  note(outcome, std::move(status));
}

void resume(Engine& engine, EngineOutcome* outcome) {
  Status status = engine.resume();
  outcome->resumed = status.ok();
  if (!status.ok()) {
    log_event(LogLevel::kError, "engine.resume_failed",
              {{"engine", outcome->engine}, {"error", status}});
  }
  note(outcome, std::move(status));
}

void reload(Engine& engine, const ReloadRequest& request, const Change& change,
            EngineOutcome* outcome) {
  const double start = steady_seconds();
  ReloadResult result = engine.reload(request);
  outcome->reload_seconds = steady_seconds() - start;
  outcome->reloaded = result.weights == Weights::kNew;
  outcome->serving = result.weights == Weights::kNew   ? std::optional<Identity>(change)
                     : result.weights == Weights::kOld ? change.serving
                                                       : std::nullopt;
  for (const std::string& warning : result.warnings) {
    log_event(LogLevel::kWarning, "engine.warning",
              {{"engine", outcome->engine}, {"version", change.version}, {"reason", warning}});
  }
  if (result.status.ok()) {
    log_event(LogLevel::kInfo, "engine.reloaded",
              {{"engine", outcome->engine},
               {"version", change.version},
               {"seconds", outcome->reload_seconds}});
  } else {
    log_event(LogLevel::kError, "engine.reload_failed",
              {{"engine", outcome->engine},
               {"version", change.version},
               {"serving", version_of(outcome->serving)},
               {"error", result.status}});
  }
  outcome->warnings = std::move(result.warnings);
  note(outcome, std::move(result.status));
}

// Ok if the files may be patched.
Status may_patch(const Change& change, const std::vector<EngineOutcome>& engines) {
  if (!change.in_place || !change.from) return {};
  for (const EngineOutcome& engine : engines) {
    if (engine.paused) continue;
    return Status(engine.status)
        .at("version " + std::to_string(change.version) +
            " was not applied: an engine could not be paused");
  }
  return {};
}

}  // namespace

Status NotifyOutcome::status() const {
  if (!patch.ok()) return patch;
  for (const EngineOutcome& engine : engines) {
    if (!engine.status.ok()) return engine.status;
  }
  return {};
}

std::optional<Identity> NotifyOutcome::serving() const {
  if (engines.empty()) return std::nullopt;
  const auto& first = engines.front().serving;
  const bool same = std::all_of(engines.begin(), engines.end(),
                                [&](const EngineOutcome& e) { return e.serving == first; });
  return same ? first : std::nullopt;
}

Status Notifier::check_cancelled(std::string_view what) const {
  if (!cancelled_ || !cancelled_()) return {};
  return cancelled("stopped on request before " + std::string(what));
}

void Notifier::add(std::unique_ptr<Engine> engine) { engines_.push_back(std::move(engine)); }

std::string Notifier::names() const {
  std::string names;
  for (const auto& engine : engines_) names += engine->name() + "\n";
  return names;
}

NotifyOutcome Notifier::around(const Change& change,
                               const std::function<Result<std::filesystem::path>()>& patch) {
  NotifyOutcome outcome;
  for (const auto& engine : engines_) {
    EngineOutcome& one = outcome.engines.emplace_back();
    one.engine = engine->name();
    one.serving = change.serving;
  }
  const double start = steady_seconds();
  for_each_engine(engines_, [&](size_t i) { pause(*engines_[i], &outcome.engines[i]); });

  outcome.patch = check_cancelled("version " + std::to_string(change.version) + " was applied");
  if (outcome.patch.ok()) outcome.patch = may_patch(change, outcome.engines);
  if (outcome.patch.ok()) {
    auto checkpoint = patch();
    outcome.patched = checkpoint.ok();
    if (checkpoint.ok()) {
      outcome.checkpoint = std::filesystem::absolute(*checkpoint).lexically_normal();
    } else {
      outcome.patch = std::move(checkpoint).status();
    }
  }

  const ReloadRequest request{outcome.checkpoint, change.version, change.run};
  for_each_engine(engines_, [&](size_t i) {
    EngineOutcome& one = outcome.engines[i];
    if (outcome.patched && one.paused) {
      Status stopped = check_cancelled("it was told to reload").at(one.engine);
      if (stopped.ok()) {
        reload(*engines_[i], request, change, &one);
      } else {
        note(&one, std::move(stopped));
      }
    }
    resume(*engines_[i], &one);
  });
  if (!engines_.empty()) outcome.pause_seconds = steady_seconds() - start;
  return outcome;
}

}  // namespace deltawire
