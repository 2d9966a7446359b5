#include <fmt/format.h>

#include "cli/options.h"
#include "cli/slime/pull_options.h"
#include "cli/units.h"
#include "cli/verbs.h"

namespace deltawire::cli {
namespace {

struct SlimePullArguments {
  SlimePullSettings pull;
  std::filesystem::path source, local;
  uint64_t version = 0;
};

void say_slime_pull(const Context& context, const SlimePullReport& report) {
  if (report.recovered) context.say("finished a pull that had ended half-way");
  if (!report.reason.empty()) context.say("made anew: " + shown_path(report.reason));
  if (!report.changed) {
    context.say(fmt::format("version {}, nothing to do", report.version));
    return;
  }
  const std::string from = report.from ? std::to_string(*report.from) : "nothing";
  context.say(fmt::format("version {} -> {}, {} delta{}", from, report.version, report.num_deltas,
                          report.num_deltas == 1 ? "" : "s"));
}

int slime_pull_once(const Context& context, const SlimePullArguments& options) {
  start_log(options.pull.log);
  std::error_code error;
  const auto local = std::filesystem::absolute(options.local, error);
  const auto source = std::filesystem::absolute(options.source, error);
  Result<SlimePulled> pulled =
      pull_within(context, options.pull, {}, {local, source, options.version});
  if (!pulled.ok()) return context.fail(pulled.status());
  if (Status status = pulled->settle(); !status.ok()) return context.fail(status);
  say_slime_pull(context, pulled->report());
  context.emit(slime_pull_json(pulled->report()));
  return context.succeed();
}

}  // namespace

void add_slime_pull(Command& app, Context& context, Call* call) {
  Command* verb = make_verb(
      app, context, "slime-pull", "Bring a checkpoint to a version in slime's layout, as an engine",
      "  deltawire slime-pull /shared/updates /nvme/ckpt --version 3 --base /models/base");
  auto options = std::make_shared<SlimePullArguments>();
  verb->add_option("SOURCE", options->source, "the folder of weight_v000001, ...")->required();
  verb->add_option("LOCAL", options->local, "the local checkpoint; it is made if it does not exist")
      ->required();
  add_version(verb, "--version", &options->version, "go to this version")->required();
  add_slime_pull_options(verb, context, &options->pull, LogLevel::kWarning);
  verb->callback([&context, call, options] {
    *call = [&context, options] { return slime_pull_once(context, *options); };
  });
}

}  // namespace deltawire::cli
