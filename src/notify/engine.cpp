#include "notify/engine.h"

#include <algorithm>

#include "base/command.h"
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

// A header ends where a line does: what a key holds must not begin another one.
Status check_api_key(const Secret& key) {
  const std::string& text = key.reveal();
  const bool plain =
      std::all_of(text.begin(), text.end(), [](char c) { return c >= ' ' && c <= '~'; });
  if (plain && (text.empty() || (text.front() != ' ' && text.back() != ' '))) return {};
  return invalid_argument(
      "DELTAWIRE_ENGINE_API_KEY holds a line end or another character that no key has; was it read "
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

}  // namespace deltawire
