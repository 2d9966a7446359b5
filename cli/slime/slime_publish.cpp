#include <fmt/format.h>

#include "base/command.h"
#include "bridge/slime/publish.h"
#include "cli/log_options.h"
#include "cli/options.h"
#include "cli/slime/peer_flags.h"
#include "cli/slime/push.h"
#include "cli/units.h"
#include "cli/verbs.h"
#include "dialect/dialect.h"
#include "store/directory_store.h"

namespace deltawire::cli {
namespace {

struct SlimePublishArguments {
  std::filesystem::path checkpoint;
  PeerFlags flags;
  PushOptions push;
  LogOptions log;
};

struct SlimePushArguments {
  PeerFlags flags;
  PushOptions push;
  std::optional<uint64_t> version;
  LogOptions log;
};

Status run_pre_push_hook(const PeerFlags& flags, const SlimePublishReport& report) {
  if (flags.pre_push_hook.empty()) return {};
  CommandOptions hook;
  std::error_code error;
  hook.environment = {
      {"DELTAWIRE_VERSION", std::to_string(report.version)},
      {"DELTAWIRE_VERSION_DIR", std::filesystem::absolute(report.folder, error).string()}};
  hook.cancelled = was_interrupted;
  return run_command(flags.pre_push_hook, hook)
      .at(fmt::format("version {} is written, but the hook before engines hear of it failed",
                      report.version));
}

void say_slime_publish(const Context& context, const SlimePublishReport& report, bool full) {
  if (!report.written) {
    context.say(fmt::format("nothing differs from version {}", report.version));
    return;
  }
  context.say(fmt::format("version {}: {} of {} tensors, {}, {}", report.version,
                          report.num_changed, report.num_tensors, full ? "whole" : "delta",
                          human_bytes(double(report.file_bytes))));
}

int push_and_end(const Context& context, const PushOptions& push, const SlimePublishOptions& how,
                 uint64_t version, nlohmann::ordered_json json) {
  const PushOutcome outcome = push_version(push, how.source, how.local, how.dialect, version);
  say_push(context, outcome);
  json.update(push_json(outcome));
  context.emit(json);  // who failed and who did not, before that somebody did
  return outcome.status.ok() ? context.succeed() : context.fail(outcome.status);
}

int slime_publish_once(const Context& context, const SlimePublishArguments& options) {
  start_log(options.log);
  auto how = check_peer_flags(options.flags);
  if (!how.ok()) return context.fail(how.status());
  how->threads = context.threads;
  how->check = check_interrupted;
  const auto report = slime_publish(options.checkpoint, *how);
  if (!report.ok()) return context.fail(report.status());
  say_slime_publish(context, *report, how->full);
  if (Status hook = run_pre_push_hook(options.flags, *report); !hook.ok())
    return context.fail(hook);
  return push_and_end(context, options.push, *how, report->version,
                      {{"version", report->version},
                       {"written", report->written},
                       {"tensors", report->num_tensors},
                       {"changed", report->num_changed},
                       {"bytes", report->file_bytes},
                       {"folder", report->folder.string()},
                       {"seconds", report->seconds}});
}

int slime_push_once(const Context& context, const SlimePushArguments& options) {
  start_log(options.log);
  PeerFlags flags = options.flags;
  flags.transport = "disk";  // there is nothing else to push from
  auto how = check_peer_flags(flags);
  if (!how.ok()) return context.fail(how.status());
  DirectoryStore store(how->source);
  const auto versions = find_dialect(how->dialect)->versions(store);
  if (!versions.ok()) return context.fail(versions.status());
  if (versions->empty()) {
    return context.fail(not_found(how->source.string() + ": there is no version to push"));
  }
  const uint64_t version = options.version.value_or(versions->back());
  return push_and_end(context, options.push, *how, version, {{"version", version}});
}

}  // namespace

void add_slime_publish(Command& app, Context& context, Call* call) {
  Command* verb = make_verb(app, context, "slime-publish",
                            "Write a checkpoint as the next version in slime's layout",
                            "  deltawire slime-publish ckpt/ --update-weight-mode delta "
                            "--update-weight-transport disk \\\n"
                            "    --update-weight-disk-dir /shared/updates "
                            "--update-weight-local-checkpoint-dir /nvme/ckpt "
                            "\\\n    --hf-checkpoint base/ --engine http://10.0.0.7:30000\n"
                            "The flags are those of slime, miles and vime, with their defaults.");
  auto options = std::make_shared<SlimePublishArguments>();
  verb->add_option("CKPT", options->checkpoint, "a .safetensors file, or a folder that holds one")
      ->required();
  add_peer_flags(verb, &options->flags);
  add_push_options(verb, &options->push);
  add_threads(verb, context);
  add_log_options(verb, &options->log);
  verb->callback([&context, call, options] {
    *call = [&context, options] { return slime_publish_once(context, *options); };
  });
}

void add_slime_push(Command& app, Context& context, Call* call) {
  Command* verb = make_verb(
      app, context, "slime-push", "Tell engines about a version in slime's layout, again",
      "  deltawire slime-push --update-weight-disk-dir /shared/updates \\\n"
      "    --update-weight-local-checkpoint-dir /nvme/ckpt --engine http://10.0.0.7:30000 "
      "--remove-acknowledged");
  auto options = std::make_shared<SlimePushArguments>();
  add_version(verb, "--version", &options->version, "this version (default: the newest)");
  add_peer_flags(verb, &options->flags);
  add_push_options(verb, &options->push);
  add_log_options(verb, &options->log);
  verb->callback([&context, call, options] {
    *call = [&context, options] { return slime_push_once(context, *options); };
  });
}

}  // namespace deltawire::cli
