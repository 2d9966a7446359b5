#include <fmt/format.h>

#include "bridge/bridge.h"
#include "cli/table.h"
#include "cli/verbs.h"
#include "delta/delta_reader.h"
#include "deltawire/delta.h"

namespace deltawire::cli {
namespace {

struct ApplyArguments {
  std::string delta, base, out;
};

// Their versions tell neither how much changes nor what the whole state is.
int report_foreign(const Context& context, const ForeignPath& foreign, const ApplyReport& report,
                   double took) {
  context.emit({{"dialect", foreign.dialect},
                {"version", *foreign.version},
                {"tensors", report.num_tensors},
                {"tensors_patched", report.num_patched},
                {"full_bytes", report.weights_bytes},
                {"seconds", took}});
  context.print("dialect   {}, version {}", foreign.dialect, *foreign.version);
  context.print("patched   {} of {} tensors", report.num_patched, report.num_tensors);
  context.print("time      {}, {}/s of weights", seconds(took),
                human_bytes(double(report.weights_bytes) / took));
  return context.succeed();
}

int apply(const Context& context, const ApplyArguments& options) {
  const double start = now_seconds();
  std::optional<ForeignPath> foreign;
  Result<ApplyReport> result = [&]() -> Result<ApplyReport> {
    ProgressBar bar(context, "apply");
    const ApplyOptions how{context.threads, bar.callback()};
    if (!looks_like_delta(options.delta)) {
      DW_ASSIGN_OR_RETURN(foreign, recognise_foreign(options.delta));
      if (foreign) return apply_foreign(*foreign, options.base, options.out, how);
    }
    return apply_delta(options.delta, options.base, options.out, how);
  }();
  if (!result.ok()) return context.fail(result.status());
  const ApplyReport& report = *result;
  const double took = now_seconds() - start;
  if (foreign) return report_foreign(context, *foreign, report, took);
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
  verb->add_option("DELTA", options->delta,
                   "a delta that `diff` wrote, or a version of slime, miles or TRL")
      ->required();
  verb->add_option("CKPT", options->base, "the checkpoint it was made from")->required();
  verb->add_option(
          "-o,--output", options->out,
          "where the new checkpoint goes when it is whole and checked. CKPT decides what it "
          "is: a file, replaced if it is there (CKPT itself, too); or a folder, which must "
          "be new or empty")
      ->required();
  add_threads(verb, context);
}

}  // namespace deltawire::cli
