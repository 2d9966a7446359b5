#include <fmt/format.h>

#include "cli/units.h"
#include "cli/verbs.h"
#include "deltawire/delta.h"

namespace deltawire::cli {
namespace {

struct Options {
  std::string old_path, new_path, out, digest = "xxh3-128", part_size = "1GiB";
  DiffOptions diff;
};

int diff(const Context& context, Options& options) {
  const auto part_bytes = parse_count(options.part_size);
  if (!part_bytes.ok()) return context.fail(part_bytes.status());
  const auto digest = parse_digest_kind(options.digest);
  if (!digest || *digest == DigestKind::kSha256) {
    return context.fail(invalid_argument("digest \"" + options.digest +
                                         "\" is not known; known: xxh3-128, blake3, adler32"));
  }
  options.diff.part_bytes = *part_bytes;
  options.diff.digest = *digest;
  options.diff.threads = context.threads;
  const double start = now_seconds();
  Result<DiffReport> result = [&] {
    ProgressBar bar(context, "diff");
    options.diff.progress = bar.callback();
    return diff_checkpoints(options.old_path, options.new_path, options.out, options.diff);
  }();
  if (!result.ok()) return context.fail(result.status());
  const DiffReport& report = *result;
  const double took = now_seconds() - start;
  const double density =
      report.num_elements == 0 ? 0 : double(report.num_changed) / double(report.num_elements);
  const double per_changed =
      report.num_changed == 0 ? 0 : double(report.delta_bytes) / double(report.num_changed);

  context.emit({{"elements", report.num_elements},
                {"changed", report.num_changed},
                {"density", density},
                {"bytes", report.delta_bytes},
                {"bytes_per_changed", per_changed},
                {"codec", options.diff.codec},
                {"seconds", took},
                {"tensors", report.num_tensors},
                {"tensors_changed", report.num_changed_tensors},
                {"tensors_added", report.num_added},
                {"tensors_removed", report.num_removed},
                {"full_bytes", report.weights_bytes},
                {"parts", report.num_parts},
                {"digest", options.digest},
                {"base", report.base.hex()},
                {"target", report.target.hex()}});
  context.say(fmt::format("elements  {}", human_count(report.num_elements)));
  context.say(fmt::format("changed   {} ({})", human_count(report.num_changed), percent(density)));
  std::string tensors =
      fmt::format("tensors   {} of {} changed", report.num_changed_tensors, report.num_tensors);
  if (report.num_added != 0) tensors += fmt::format(", {} sent whole", report.num_added);
  if (report.num_removed != 0) tensors += fmt::format(", {} removed", report.num_removed);
  context.say(tensors);
  std::string delta = fmt::format("delta     {} in {}", human_bytes(double(report.delta_bytes)),
                                  plural(report.num_parts, "part"));
  if (report.num_changed != 0) {
    delta += fmt::format(", {:.3f} bytes per changed element", per_changed);
  }
  context.say(delta);
  context.say(fmt::format("full      {}: {:.1f} times the delta",
                          human_bytes(double(report.weights_bytes)),
                          double(report.weights_bytes) / double(report.delta_bytes)));
  context.say(fmt::format("time      {}, {}/s of weights", seconds(took),
                          human_bytes(double(report.weights_bytes) / took)));
  return context.succeed();
}

}  // namespace

void add_diff(CLI::App& app, Context& context, Run* run) {
  CLI::App* verb = make_verb(
      app, context, "diff", "Write what changed between two checkpoints",
      "  deltawire diff step1.safetensors step2.safetensors -o delta.safetensors\n"
      "  deltawire diff ckpt-1/ ckpt-2/ -o delta/ --part-size 256MiB\n"
      "  deltawire diff a.safetensors b.safetensors -o d.safetensors --codec xor-zstd --json");
  auto options = std::make_shared<Options>();
  verb->add_option("OLD", options->old_path,
                   "the checkpoint before: a .safetensors file or a folder")
      ->required();
  verb->add_option("NEW", options->new_path, "the checkpoint after")->required();
  verb->add_option(
          "-o,--output", options->out,
          "where the delta goes: NAME.safetensors is one file, any other name a folder of parts")
      ->required();
  verb->add_option(
      "--codec", options->diff.codec,
      "auto (default), tight, gaps, gaps-zstd, xor-zstd, overwrite-zstd, indices or raw");
  verb->add_option("--digest", options->digest, "xxh3-128 (default), blake3 or adler32");
  verb->add_option("--part-size", options->part_size,
                   "start a new part of a folder at this size (default 1GiB)");
  add_threads(verb, context);
  verb->callback(
      [&context, run, options] { *run = [&context, options] { return diff(context, *options); }; });
}

}  // namespace deltawire::cli
