#include "cli/inspect/inspect.h"

#include "bridge/bridge.h"
#include "cli/verbs.h"
#include "delta/delta_reader.h"

namespace deltawire::cli {
namespace {

int inspect(const Context& context, const InspectOptions& options) {
  const Status status = [&]() -> Status {
    if (looks_like_delta(options.path)) return inspect_delta(context, options);
    DW_ASSIGN_OR_RETURN(const auto foreign, recognise_foreign(options.path));
    if (foreign) return inspect_foreign(context, options, *foreign);
    return inspect_checkpoint(context, options);
  }();
  return status.ok() ? context.succeed() : context.fail(status);
}

}  // namespace

void add_inspect(Command& app, Context& context, Call* call) {
  Command* verb = make_verb(app, context, "inspect",
                            "Show what is in a checkpoint or a delta; also of slime, miles and TRL",
                            "  deltawire inspect delta.safetensors\n"
                            "  deltawire inspect delta.safetensors --base step1.safetensors\n"
                            "  deltawire inspect ckpt-1/ --tensor model.norm.weight --json\n"
                            "  deltawire inspect deltas/                  all versions, of slime\n"
                            "  deltawire inspect deltas/weight_v000012    one of them");
  auto options = std::make_shared<InspectOptions>();
  verb->add_option("PATH", options->path,
                   "a checkpoint or a delta: a .safetensors file or a folder")
      ->required();
  verb->add_option("--base", options->base,
                   "the checkpoint a delta was made from: shows how far elements moved, and which");
  verb->add_option("--tensor", options->tensor, "look at this tensor only");
  verb->add_flag("--all", options->all, "list every tensor, not just the 20 largest");
  add_threads(verb, context);
  verb->callback([&context, call, options] {
    *call = [&context, options] { return inspect(context, *options); };
  });
}

}  // namespace deltawire::cli
