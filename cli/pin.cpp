// pin and unpin: what retention keeps beside the newest versions.
#include <fmt/format.h>

#include "cli/chain_args.h"
#include "cli/options.h"
#include "cli/verbs.h"

namespace deltawire::cli {
namespace {

struct PinArguments {
  ChainArgs chain;
  uint64_t version = 0;
};

int change_pin(const Context& context, const PinArguments& options, bool pinned) {
  const Result<Chain> chain = open_chain(options.chain);
  if (!chain.ok()) return context.fail(chain.status());
  const Status status = pinned ? chain->pin(options.version) : chain->unpin(options.version);
  if (!status.ok()) return context.fail(status);
  context.say(
      fmt::format("version {} {}", options.version,
                  pinned ? "is pinned: gc keeps it and what leads to it" : "is no longer pinned"));
  context.emit({{"version", options.version}, {"pinned", pinned}});
  return context.succeed();
}

void add(Command* verb, Context& context, Call* call, bool pinned) {
  auto options = std::make_shared<PinArguments>();
  add_chain_args(verb, &options->chain);
  add_version(verb, "VERSION", &options->version, "its number")->required();
  verb->callback([&context, call, options, pinned] {
    *call = [&context, options, pinned] { return change_pin(context, *options, pinned); };
  });
}

}  // namespace

void add_pin(Command& app, Context& context, Call* call) {
  add(make_verb(app, context, "pin", "Protect a version, and what leads to it, from gc",
                "  deltawire pin s3://bucket/run 400"),
      context, call, true);
}

void add_unpin(Command& app, Context& context, Call* call) {
  add(make_verb(app, context, "unpin", "Remove the pins of a version: gc may remove it again",
                "  deltawire unpin s3://bucket/run 400"),
      context, call, false);
}

}  // namespace deltawire::cli
