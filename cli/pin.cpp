// Pins: versions that retention keeps in addition to the newest ones.
#include <fmt/format.h>

#include "cli/options.h"
#include "cli/verbs.h"

namespace deltawire::cli {
namespace {

struct PinArguments {
  ChainArgs chain;
  uint64_t version = 0;
  bool remove = false;
};

Status change_pin(const Context& context, const PinArguments& options) {
  DW_ASSIGN_OR_RETURN(const Chain chain, open_chain(options.chain));
  DW_RETURN_IF_ERROR(options.remove ? chain.unpin(options.version) : chain.pin(options.version));
  context.print(
      "version {} {}", options.version,
      options.remove ? "is no longer pinned" : "is pinned: gc keeps it and what leads to it");
  context.emit({{"version", options.version}, {"pinned", !options.remove}});
  return {};
}

}  // namespace

void add_pin(Command& app, Context& context, Call* call) {
  Command* verb = make_verb(app, context, "pin", "Protect a version, and what leads to it, from gc",
                            "  deltawire pin s3://bucket/run 400\n"
                            "  deltawire pin s3://bucket/run 400 --remove");
  auto* const options = set_call(verb, context, call, change_pin);
  add_chain_args(verb, &options->chain);
  add_version(verb, "VERSION", &options->version, "its number")->required();
  verb->add_flag("--remove", options->remove, "remove its pins: gc may remove it again");
}

}  // namespace deltawire::cli
