#include "cli/publish/publish.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "base/log.h"
#include "cli/options.h"
#include "cli/table.h"
#include "cli/verbs.h"
#include "deltawire/publisher.h"

namespace deltawire::cli {

std::optional<HoldersReport> wait_for_holders(const PublishVerbOptions& options,
                                              PublishReport* report) {
  if (options.wait_for == 0) return {};
  const Result<HoldersReport> held = [&]() -> Result<HoldersReport> {
    DW_ASSIGN_OR_RETURN(const Chain chain, Chain::open(options.opened_store));
    return chain.wait_until_held({.version = report->version,
                                  .replicas = options.wait_for,
                                  .timeout_seconds = options.wait_timeout,
                                  .cancelled = was_interrupted});
  }();
  if (!held.ok()) {
    report->warnings.push_back("which replicas hold the version is not known: " +
                               held.status().to_string());
    return {};
  }
  if (held->complete) return *held;
  report->warnings.push_back(fmt::format("version {}: {} after {}, expected {}", report->version,
                                         one_line(*held), seconds(held->seconds),
                                         options.wait_for));
  for (const Holder& one : held->replicas) {
    if (one.missing.empty()) continue;
    report->warnings.push_back(fmt::format("replica {}: {}", one.name, one.missing));
  }
  return *held;
}

Json to_json(const HoldersReport& report) {
  Json replicas = Json::array();
  for (const Holder& one : report.replicas) {
    replicas.push_back(
        {{"name", one.name}, {"version", or_null(version_of(one.held))}, {"missing", one.missing}});
  }
  return {{"complete", report.complete}, {"seconds", report.seconds}, {"replicas", replicas}};
}

std::string one_line(const HoldersReport& report) {
  return fmt::format("held by {} of {}", report.num_holding,
                     plural(report.replicas.size(), "replica"));
}

namespace fs = std::filesystem;
namespace {

bool is_store(const std::string& place) {
  std::error_code error;
  return is_store_url(place) || fs::exists(fs::path(place) / "run.json", error);
}

// By its name, or the names in it.
bool is_checkpoint(const std::string& place) {
  std::error_code error;
  if (fs::is_regular_file(place, error)) return fs::path(place).extension() == ".safetensors";
  for (fs::directory_iterator it(place, error), end; !error && it != end; it.increment(error)) {
    if (it->path().extension() == ".safetensors") return !is_store(place);
  }
  return false;
}

}  // namespace

Status PublishVerbOptions::check_order() const {
  const bool swapped =
      is_store(checkpoint) ? !is_store(store) : is_checkpoint(store) && !is_checkpoint(checkpoint);
  if (!swapped) return {};
  return invalid_argument(
      (is_store(checkpoint) ? checkpoint + ": is a store" : store + ": is a checkpoint") +
      "; the store comes last, so give deltawire publish " + (watch ? "--watch " : "") + store +
      " " + checkpoint);
}

Status PublishVerbOptions::complete(const Context& context) {
  if (mode == "full") {
    if (anchors.every != 0 || no_anchors) {
      return invalid_argument(std::string("--mode full stores every version whole: leave out ") +
                              (no_anchors ? "--no-anchors" : "--anchor-every"));
    }
    publish.anchors = OnlyAnchors{};
  } else {
    publish.anchors = no_anchors ? Anchors{.every = 0, .by_bytes = false} : anchors;
  }
  publish.limits.threads = context.threads;
  SnapshotInFolder place{snapshot, snapshot.empty()};
  if (place.per_run) {
    DW_ASSIGN_OR_RETURN(place.folder, cache_folder("snapshots", "--snapshot"));
  }
  publish.snapshot = std::move(place);
  return {};
}

std::filesystem::path PublishVerbOptions::snapshot_of(const std::string& run) const {
  const auto& place = std::get<SnapshotInFolder>(publish.snapshot);
  return place.per_run ? place.folder / run : place.folder;
}

Result<Publisher> open_publisher(PublishVerbOptions* options) {
  DW_ASSIGN_OR_RETURN(options->opened_store, open_store(options->store, options->store_options));
  return Publisher::open(options->opened_store, options->publish);
}

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
  std::optional<HoldersReport> held;
  const Result<PublishReport> report = [&]() -> Result<PublishReport> {
    ProgressBar bar(context, "publish");
    options.publish.progress = bar.callback();
    DW_ASSIGN_OR_RETURN(Publisher publisher, open_publisher(&options));
    DW_ASSIGN_OR_RETURN(PublishReport made, publisher.publish_checkpoint(options.checkpoint));
    held = wait_for_holders(options, &made);
    return made;
  }();
  if (!report.ok()) return context.fail(explain(report.status()));
  Json json = to_json(*report);
  if (held) json["holders"] = to_json(*held);
  context.emit(json);
  say_report(context, *report);
  if (held) context.print("holders   {}", one_line(*held));
  if (options.wait_for != 0 && !(held && held->complete)) return int(Code::kUnavailable);
  return context.succeed();
}

}  // namespace

void add_publish(Command& app, Context& context, Call* call) {
  Command* verb =
      make_verb(app, context, "publish", "Publish a checkpoint as the next version of a chain",
                "  deltawire publish step-100/ /mnt/shared/run7   the seed; later: what changed\n"
                "  deltawire publish step-200/ s3://bucket/run7 --endpoint https://s3.example\n"
                "  deltawire publish step-300/ /mnt/run7 --anchor-every 50 --codec tight --json\n"
                "  deltawire publish --watch ckpts/ /mnt/run7    every checkpoint that appears\n"
                "With --watch and --json, one object per version.");
  auto* const options = set_call(verb, context, call, publish);
  PublishOptions& publish_options = options->publish;
  verb->add_option("CKPT", options->checkpoint,
                   "a .safetensors file or a folder; with --watch the folder in which they appear")
      ->required();
  verb->add_option("STORE", options->store, "a folder, s3://BUCKET/PREFIX or file:///PATH")
      ->required();
  add_codec(verb, &publish_options.codec, "auto (default): the smallest of each tensor", {"auto"});
  add_choice(verb, "--mode", &options->mode,
             "delta (default), or full: every version whole, without a snapshot",
             {"delta", "full"});
  add_bytes(verb, "--part-size", &publish_options.part_bytes,
            "maximum size of a part (default 64MiB)");
  add_bytes(verb, "--memory-limit", &publish_options.limits.memory_bytes,
            "memory for publishing, without the snapshot; 32MiB or more (default 2GiB)");
  verb->add_option("--snapshot", options->snapshot,
                   "folder that keeps the last published state (default: "
                   "~/.cache/deltawire/snapshots/RUN)");
  verb->add_flag("--schema-change", publish_options.schema_change,
                 "allow tensors to be added, removed or changed in shape or dtype; without it such "
                 "a checkpoint is refused");
  verb->add_flag("--accept-loss", publish_options.accept_loss,
                 "continue although the store lost versions, or has others under their numbers: a "
                 "whole version onto its newest");
  verb->add_flag(
      "--new-run", publish_options.new_run,
      "begin a new run even if the snapshot belongs to a run that the store does not have");
  auto* every = add_whole_number(verb, "--anchor-every", &options->anchors.every,
                                 "also store every N-th version whole", 0, 9'999'999'999);
  auto* by_bytes =
      verb->add_flag("--anchor-by-bytes,!--no-anchor-by-bytes", options->anchors.by_bytes,
                     "also store a version whole when the deltas since the last anchor are larger "
                     "than one (default)");
  verb->add_flag("--no-anchors", options->no_anchors, "store no version whole except the seed")
      ->excludes(every)
      ->excludes(by_bytes);
  add_key_options(verb, &publish_options.keys);
  verb->add_option("--hook-before-commit", publish_options.hook_before_commit.command,
                   "shell command to run when all parts are uploaded; unless it exits with 0, "
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
  add_seconds(verb, "--settle", &options->settle,
              "with --watch: a checkpoint is complete after this long without a change (default 2)",
              0, 86400)
      ->needs(watching);
  add_seconds(verb, "--interval", &options->interval, "with --watch: polling interval (default 1)",
              0.01, 86400)
      ->needs(watching);
  verb->add_flag("--once", options->once, "with --watch: publish what exists and end")
      ->needs(watching);
  auto* const waiting = add_whole_number(
      verb, "--wait-for", &options->wait_for,
      "after each version, wait until this many replicas hold it; warnings name those that do not",
      1, 1'000'000);
  add_seconds(verb, "--wait-timeout", &options->wait_timeout,
              "with --wait-for: time limit (default 60)", 0, 86400)
      ->needs(waiting);
  add_metrics_options(verb, &options->metrics)->needs(watching);
  add_log_options(verb, &options->log);
  add_threads(verb, context);
  add_store_options(verb, &options->store_options);
}

}  // namespace deltawire::cli
