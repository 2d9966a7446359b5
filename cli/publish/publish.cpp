#include <fmt/format.h>

#include "cli/options.h"
#include "cli/publish/options.h"
#include "cli/publish/report.h"
#include "cli/store_options.h"
#include "cli/verbs.h"
#include "cli/work_options.h"
#include "deltawire/publisher.h"

namespace deltawire::cli {
namespace {

Status explain(Status status) {
  if (status.code() != Code::kConflict) return status;
  return Status(status.code(),
                status.message() + "; publish again to go on from the version that is there");
}

int publish(const Context& context, PublishVerbOptions& options) {
  if (const Status status = options.complete(context); !status.ok()) return context.fail(status);
  start_log(options.log);
  if (const Status status = options.check_order(); !status.ok()) return context.fail(status);
  if (options.watch) return watch(context, options);
  std::optional<ShipReport> shipped;
  const Result<PublishReport> report = [&]() -> Result<PublishReport> {
    ProgressBar bar(context, "publish");
    options.publish.progress = bar.callback();
    DW_ASSIGN_OR_RETURN(Publisher publisher, open_publisher(context, &options));
    DW_ASSIGN_OR_RETURN(PublishReport made, publisher.publish_checkpoint(options.checkpoint));
    if (options.shipper) shipped = settle_ship(*options.shipper, &made);
    return made;
  }();
  if (!report.ok()) return context.fail(explain(report.status()));
  nlohmann::ordered_json json = to_json(*report);
  if (shipped) json["ship"] = to_json(*shipped);
  context.emit(json);
  say_report(context, *report);
  if (shipped) context.say("ship      " + one_line(*shipped));
  return context.succeed();
}

}  // namespace

void add_publish(Command& app, Context& context, Call* call) {
  Command* verb = make_verb(
      app, context, "publish", "Publish a checkpoint as the next version of a chain",
      "  deltawire publish step-100/ /mnt/shared/run7     first: the seed; later: what changed\n"
      "  deltawire publish step-200/ s3://bucket/run7 --endpoint https://s3.example\n"
      "  deltawire publish step-300/ /mnt/shared/run7 --anchor-every 50 --codec tight --json\n"
      "  deltawire publish --watch checkpoints/ /mnt/shared/run7    every one that appears there\n"
      "  deltawire publish --watch checkpoints/ /mnt/shared/run7 --ship 10.0.0.1:7000 "
      "--ship-secret-file secret\n"
      "With --watch and --json, one object per version.");
  auto options = std::make_shared<PublishVerbOptions>();
  PublishOptions& publish_options = options->publish;
  verb->add_option("CKPT", options->checkpoint,
                   "a .safetensors file or a folder; with --watch the folder they appear in")
      ->required();
  verb->add_option("STORE", options->store, "a folder, s3://BUCKET/PREFIX or file:///PATH")
      ->required();
  add_codec(verb, &publish_options.codec, "auto (default): the smallest of each tensor", {"auto"});
  add_choice(verb, "--mode", &options->mode,
             "delta (default), or full: every version whole, without a snapshot",
             {"delta", "full"});
  add_bytes(verb, "--part-size", &publish_options.part_bytes, "of one part (default 64MiB)");
  add_bytes(verb, "--memory-limit", &publish_options.limits.memory_bytes,
            "memory for publishing, without the snapshot; 32MiB or more (default 2GiB)");
  verb->add_option("--snapshot", options->snapshot,
                   "folder that keeps the last published state (default: "
                   "~/.cache/deltawire/snapshots/RUN)");
  verb->add_flag("--schema-change", publish_options.schema_change,
                 "tensors may come, go or change shape or dtype: otherwise such a checkpoint is "
                 "refused, as another model");
  verb->add_flag("--accept-loss", publish_options.accept_loss,
                 "the store lost versions, or holds others under their numbers: go on from its "
                 "newest version, with a whole one");
  verb->add_flag("--new-run", publish_options.new_run,
                 "begin a new run, though the snapshot is of a run that the store does not have");
  auto* every = add_whole_number(verb, "--anchor-every", &options->anchors.every,
                                 "also store every N-th version whole", 0, 9'999'999'999);
  auto* by_bytes =
      verb->add_flag("--anchor-by-bytes,!--no-anchor-by-bytes", options->anchors.by_bytes,
                     "also store a version whole when the deltas since the last anchor are larger "
                     "than one (default)");
  verb->add_flag("--no-anchors", options->no_anchors, "never store a version whole beside the seed")
      ->excludes(every)
      ->excludes(by_bytes);
  add_key_options(verb, &publish_options.keys);
  verb->add_option("--hook-before-commit", publish_options.hook_before_commit.command,
                   "shell command to call when all parts are uploaded; if it does not exit with 0, "
                   "nothing is committed (DELTAWIRE_VERSION, _STORE, _RUN)");
  add_seconds(verb, "--hook-timeout", &publish_options.hook_before_commit.timeout_seconds,
              "limit of the hook (default 600)", 0.001, 86400);
  verb->add_flag("--single-writer", publish_options.single_writer,
                 "there is no other publisher: allow a store without conditional put");
  verb->add_flag(
      "--plain-files", publish_options.plain_files,
      "store whole versions as plain checkpoints, larger, which engines can load from the "
      "store");
  auto* watching = verb->add_flag("--watch", options->watch,
                                  "publish every complete checkpoint that appears in the folder "
                                  "CKPT, in order, until interrupted");
  add_seconds(
      verb, "--settle", &options->settle,
      "with --watch: a checkpoint counts as complete after so long without a change (default 2)", 0,
      86400)
      ->needs(watching);
  add_seconds(verb, "--interval", &options->interval,
              "with --watch: look at least this often (default 1)", 0.01, 86400)
      ->needs(watching);
  verb->add_flag("--once", options->once, "with --watch: publish what is there and end")
      ->needs(watching);
  add_ship_options(verb, &options->ship);
  add_metrics_options(verb, &options->metrics)->needs(watching);
  add_log_options(verb, &options->log);
  add_threads(verb, context);
  add_store_options(verb, &options->store_options);
  verb->callback([&context, call, options] {
    *call = [&context, options] { return publish(context, *options); };
  });
}

}  // namespace deltawire::cli
