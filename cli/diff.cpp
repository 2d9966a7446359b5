#include <fmt/format.h>

#include "cli/options.h"
#include "cli/table.h"
#include "cli/verbs.h"
#include "delta/delta_writer.h"
#include "deltawire/delta.h"
#include "tensor/text.h"

namespace deltawire::cli {
namespace {

struct DiffArguments {
  std::string old_path, new_path, out;
  Option* part_size = nullptr;
  DiffOptions diff;
};

std::string full_line(const DiffReport& report) {
  const double times = double(report.weights_bytes) / double(report.delta_bytes);
  return fmt::format("full      {}: {:.1f} times the delta",
                     human_bytes(double(report.weights_bytes)), times);
}

// Splits the bytes: tensors sent whole say nothing about the cost of changed elements.
std::string delta_line(const DiffReport& report, const std::optional<double>& per_changed) {
  std::string line = fmt::format("delta     {} in {}", human_bytes(double(report.delta_bytes)),
                                 plural(report.num_parts, "part"));
  if (report.whole_bytes != 0) {
    line += fmt::format(", {} of it whole tensors", human_bytes(double(report.whole_bytes)));
  }
  if (per_changed) line += fmt::format(", {:.3f} bytes per changed element", *per_changed);
  return line;
}

std::string metadata_line(const DiffReport& report) {
  std::vector<std::string> keys;
  for (const std::string& key : report.metadata_changed) keys.push_back(quote(key));
  return fmt::format("metadata  differs in {}; a delta does not carry it, apply keeps the base's",
                     fmt::join(keys, ", "));
}

int diff(const Context& context, DiffArguments& options) {
  if (options.part_size->given() && is_single_part(options.out)) {
    return context.fail(invalid_argument(
        "--part-size is for a folder of parts, and -o " + options.out +
        " is a single file; leave it out, or choose a name that does not end in .safetensors"));
  }
  options.diff.threads = context.threads;
  const double start = steady_seconds();
  Result<DiffReport> result = [&] {
    ProgressBar bar(context, "diff");
    options.diff.progress = bar.callback();
    return diff_checkpoints(options.old_path, options.new_path, options.out, options.diff);
  }();
  if (!result.ok()) return context.fail(result.status());
  const DiffReport& report = *result;
  const double took = steady_seconds() - start;
  const double density =
      report.num_elements == 0 ? 0 : double(report.num_changed) / double(report.num_elements);
  std::optional<double> per_changed;
  if (report.num_changed != 0) {
    per_changed = double(report.delta_bytes - report.whole_bytes) / double(report.num_changed);
  }
  context.emit({{"elements", report.num_elements},
                {"changed", report.num_changed},
                {"density", density},
                {"bytes", report.delta_bytes},
                {"bytes_per_changed", or_null(per_changed)},
                {"codec", options.diff.codec},
                {"seconds", took},
                {"tensors", report.num_tensors},
                {"tensors_changed", report.num_changed_tensors},
                {"tensors_added", report.num_added},
                {"tensors_removed", report.num_removed},
                {"full_bytes", report.weights_bytes},
                {"whole_bytes", report.whole_bytes},
                {"parts", report.num_parts},
                {"base", report.base.hex()},
                {"target", report.target.hex()},
                {"metadata_changed", report.metadata_changed}});
  if (report.num_elements == 0 && report.num_added != 0) {
    context.say("changed   all: no tensor is in both");
  } else {
    context.print("elements  {}", human_count(report.num_elements));
    context.print("changed   {} ({})", human_count(report.num_changed), percent(density));
  }
  std::string tensors =
      fmt::format("tensors   {} of {} changed", report.num_changed_tensors, report.num_tensors);
  if (report.num_added != 0) tensors += fmt::format(", {} sent whole", report.num_added);
  if (report.num_removed != 0) tensors += fmt::format(", {} removed", report.num_removed);
  context.say(tensors);
  context.say(delta_line(report, per_changed));
  context.say(full_line(report));
  if (!report.metadata_changed.empty()) context.say(metadata_line(report));
  context.print("time      {}, {}/s of weights", seconds(took),
                human_bytes(double(report.weights_bytes) / took));
  return context.succeed();
}

}  // namespace

void add_diff(Command& app, Context& context, Call* call) {
  Command* verb =
      make_verb(app, context, "diff", "Write what changed between two checkpoints",
                "  deltawire diff step1.safetensors step2.safetensors -o delta.safetensors\n"
                "  deltawire diff ckpt-1/ ckpt-2/ -o delta/ --part-size 256MiB\n"
                "  deltawire diff ckpt-1/ ckpt-2/ -o delta/ --codec gaps --json\n\n"
                "A delta has tensors only, no `__metadata__` and no files beside the weights.");
  auto* const options = set_call(verb, context, call, diff);
  verb->add_option("OLD", options->old_path,
                   "the checkpoint before: a .safetensors file or a folder")
      ->required();
  verb->add_option("NEW", options->new_path, "the checkpoint after")->required();
  verb->add_option("-o,--output", options->out,
                   "where to write the delta: NAME.safetensors is one file, replaced if it exists; "
                   "any other name is a folder of parts, which must be new or empty")
      ->required();
  add_codec(verb, &options->diff.codec, "auto (default): the smallest of each tensor", {"auto"});
  options->part_size =
      add_bytes(verb, "--part-size", &options->diff.part_bytes,
                "start a new part of a folder at this size, e.g. 256MiB or 1GB (default 1GiB)");
  add_threads(verb, context);
}

}  // namespace deltawire::cli
