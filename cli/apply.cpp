#include <fmt/format.h>

#include "cli/table.h"
#include "cli/verbs.h"
#include "deltawire/delta.h"

namespace deltawire::cli {
namespace {

struct ApplyArguments {
  std::string delta, base, out;
};

int apply(const Context& context, const ApplyArguments& options) {
  const double start = steady_seconds();
  Result<ApplyReport> result = [&] {
    ProgressBar bar(context, "apply");
    return apply_delta(options.delta, options.base, options.out, {context.threads, bar.callback()});
  }();
  if (!result.ok()) return context.fail(result.status());
  const ApplyReport& report = *result;
  const double took = steady_seconds() - start;
  context.emit({{"tensors", report.num_tensors},
                {"tensors_patched", report.num_patched},
                {"tensors_added", report.num_added},
                {"tensors_removed", report.num_removed},
                {"changed", report.num_changed},
                {"full_bytes", report.weights_bytes},
                {"target", report.target.hex()},
                {"target_known", report.target_known},
                {"seconds", took}});
  context.print("patched   {} of {} tensors, {}", report.num_patched, report.num_tensors,
                plural(report.num_changed, "element"));
  if (report.num_added != 0) {
    context.print("whole     {}", plural(report.num_added, "tensor"));
  }
  if (report.num_removed != 0) {
    context.print("removed   {}", plural(report.num_removed, "tensor"));
  }
  context.print("checked   base and {}, by digest; state {}",
                report.target_known ? "result" : "patched tensors (a part of a chain)",
                report.target.hex());
  context.print("time      {}, {}/s of weights", seconds(took),
                human_bytes(double(report.weights_bytes) / took));
  return context.succeed();
}

}  // namespace

void add_apply(Command& app, Context& context, Call* call) {
  Command* verb = make_verb(
      app, context, "apply", "Make the new checkpoint from the old one and a delta",
      "  deltawire apply delta.safetensors step1.safetensors -o step2.safetensors\n"
      "  deltawire apply delta/ ckpt-1/ -o ckpt-2/\n\n"
      "Tensors are those of the new checkpoint; `__metadata__`, permission bits and the files "
      "beside the weights (not subfolders) are those of CKPT.");
  auto* const options = set_call(verb, context, call, apply);
  verb->add_option("DELTA", options->delta, "a delta that `diff` wrote")->required();
  verb->add_option("CKPT", options->base, "the checkpoint it was made from")->required();
  verb->add_option("-o,--output", options->out,
                   "where to write the new checkpoint once it is complete and checked: a file, if "
                   "CKPT is one (replaced if it exists, even CKPT itself); else a folder, which "
                   "must be new or empty")
      ->required();
  add_threads(verb, context);
}

}  // namespace deltawire::cli
