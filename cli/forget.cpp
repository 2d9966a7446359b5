#include <fmt/format.h>

#include "cli/chain_args.h"
#include "cli/table.h"
#include "cli/units.h"
#include "cli/verbs.h"

namespace deltawire::cli {
namespace {

struct ForgetArguments {
  ChainArgs chain;
  std::string name;
  bool force = false;
};

// As `status` shows it: a name that would harm a terminal cannot be typed as it is.
Result<std::string> typed_name(const Chain& chain, const std::string& typed) {
  DW_ASSIGN_OR_RETURN(const std::vector<ListedHeartbeat> all, chain.replicas());
  for (const ListedHeartbeat& listed : all) {
    if (listed.heartbeat.ok() && shown_replica(listed.heartbeat->name) == typed) {
      return listed.heartbeat->name;
    }
  }
  return typed;
}

int forget(const Context& context, const ForgetArguments& options) {
  const Result<uint64_t> removed = [&]() -> Result<uint64_t> {
    DW_ASSIGN_OR_RETURN(const Chain chain, open_chain(options.chain));
    DW_ASSIGN_OR_RETURN(const std::string name, typed_name(chain, options.name));
    return chain.forget(name, options.force);
  }();
  if (!removed.ok()) return context.fail(removed.status());
  context.say(fmt::format("forgotten: replica {}, {}", shown_replica(options.name),
                          plural(*removed, "heartbeat")));
  context.emit({{"name", options.name}, {"removed", *removed}});
  return context.succeed();
}

}  // namespace

void add_forget(Command& app, Context& context, Call* call) {
  Command* verb =
      make_verb(app, context, "forget", "Remove the heartbeat of a replica that is gone",
                "  deltawire forget s3://bucket/run rollout-3");
  auto options = std::make_shared<ForgetArguments>();
  add_chain_args(verb, &options->chain);
  verb->add_option("NAME", options->name, "the replica, as `deltawire status STORE` shows it")
      ->required();
  verb->add_flag("--force", options->force,
                 "even if it is alive; it comes back when it next writes a heartbeat");
  verb->callback([&context, call, options] {
    *call = [&context, options] { return forget(context, *options); };
  });
}

}  // namespace deltawire::cli
