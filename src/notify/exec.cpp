#include "base/command.h"
#include "notify/kinds.h"

namespace deltawire {
namespace {

// A command at the reload step: for engines that are told in their own way. Whether running it
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
    // Conflict: it ran to its end and said no. Io: it never ran.
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

}  // namespace

std::unique_ptr<Engine> make_exec(std::string command, const EngineOptions& options) {
  return std::make_unique<ExecEngine>(std::move(command), options);
}

}  // namespace deltawire
