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

namespace {

constexpr const char* kShipGroup = "Ship";
constexpr double kLookSeconds = 0.2;

// In short turns, so that Ctrl-C is heard.
Status wait_for_replicas(Shipper& shipper, unsigned count, double seconds) {
  const double end = now_seconds() + seconds;
  while (true) {
    Status status = shipper.wait_for(count, kLookSeconds);
    if (status.ok() || now_seconds() >= end) return status;
    if (was_interrupted()) return cancelled("stopped on request");
  }
}

}  // namespace

void add_ship_options(Command* verb, ShipVerbOptions* options) {
  auto* const ship =
      verb->add_option("--ship", options->address,
                       "HOST:PORT to listen on: versions also go straight to replicas that follow "
                       "ship://HOST:PORT")
          ->group(kShipGroup);
  verb->add_option("--ship-secret-file", options->secret_file,
                   "a file whose first line every replica must know; without it only this host "
                   "may join")
      ->group(kShipGroup)
      ->needs(ship);
  verb->add_flag("--ship-open", options->how.open_to_all,
                 "without a secret: let everybody join who reaches the port")
      ->group(kShipGroup)
      ->needs(ship);
  verb->add_option("--ship-host", options->how.host,
                   "by which replicas reach this host (default: as in --ship)")
      ->group(kShipGroup)
      ->needs(ship);
  add_bytes(verb, "--ship-buffer", &options->how.buffer_bytes,
            "what goes at once; twice as much is held (default 512MiB)")
      ->group(kShipGroup)
      ->needs(ship);
  add_seconds(verb, "--ship-timeout", &options->how.timeout_seconds,
              "limit of a buffer, and of a replica to hold the version (default 60)", 0.1, 86400)
      ->group(kShipGroup)
      ->needs(ship);
  add_whole_number(verb, "--ship-wait", &options->wait,
                   "replicas that must follow before the first version", 0, 4096)
      ->group(kShipGroup)
      ->needs(ship);
  add_whole_number(verb, "--ship-keep", &options->how.keep_versions,
                   "collect garbage after each version: keep so many (default: all)", 0,
                   9'999'999'999)
      ->group(kShipGroup)
      ->needs(ship);
}

Result<std::shared_ptr<Shipper>> open_shipper(const Context& context, std::shared_ptr<Store> store,
                                              const ShipVerbOptions& options, const Keys& keys) {
  ShipOptions how = options.how;
  how.address = options.address;
  how.keys = keys;
  DW_ASSIGN_OR_RETURN(how.secret, read_ship_secret(options.secret_file));
  DW_ASSIGN_OR_RETURN(std::shared_ptr<Shipper> shipper, Shipper::listen(std::move(store), how));
  log_event(LogLevel::kInfo, "ship.listening", {{"address", shipper->address()}});
  static_cast<void>(context);
  if (options.wait != 0) {
    DW_RETURN_IF_ERROR(wait_for_replicas(*shipper, options.wait, options.wait_seconds));
  }
  return shipper;
}

ShipReport settle_ship(Shipper& shipper, PublishReport* report) {
  ShipReport shipped = shipper.settle();
  report->warnings.insert(report->warnings.end(), shipped.warnings.begin(), shipped.warnings.end());
  return shipped;
}

Json to_json(const ShipReport& report) {
  Json json = {{"version", nullptr},        {"carrier", report.carrier},
               {"epoch", report.epoch},     {"bytes", report.bytes},
               {"replicas", Json::array()}, {"phases", phases_json(report.phases)}};
  if (report.version) json["version"] = *report.version;
  for (const Shipped& one : report.replicas) {
    Json entry = {{"name", one.name},   {"from", one.from},   {"rank", nullptr},
                  {"version", nullptr}, {"bytes", one.bytes}, {"seconds", one.seconds},
                  {"error", one.error}};
    if (one.rank) entry["rank"] = *one.rank;
    if (one.version) entry["version"] = *one.version;
    json["replicas"].push_back(std::move(entry));
  }
  return json;
}

std::string one_line(const ShipReport& report) {
  const auto held = std::count_if(report.replicas.begin(), report.replicas.end(),
                                  [](const Shipped& one) { return one.error.empty(); });
  return fmt::format("held by {} of {}, {} sent", held, plural(report.replicas.size(), "replica"),
                     human_bytes(double(report.bytes)));
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

// Replicas stay while a publisher is opened anew.
Result<Publisher> open_publisher(const Context& context, PublishVerbOptions* options) {
  std::shared_ptr<Store> store;
  if (!options->shipper) {
    DW_ASSIGN_OR_RETURN(store, open_store(options->store, options->store_options));
  }
  if (!options->ship.address.empty()) {
    if (!options->shipper) {
      DW_ASSIGN_OR_RETURN(options->shipper, open_shipper(context, std::move(store), options->ship,
                                                         options->publish.keys));
    }
    store = options->shipper->store();
  }
  return Publisher::open(std::move(store), options->publish);
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
  Json json = to_json(*report);
  if (shipped) json["ship"] = to_json(*shipped);
  context.emit(json);
  say_report(context, *report);
  if (shipped) context.say("ship      " + one_line(*shipped));
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
                "  deltawire publish --watch ckpts/ /mnt/run7 --ship 10.0.0.1:7000\n"
                "With --watch and --json, one object per version.");
  auto* const options = set_call(verb, context, call, publish);
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
}

}  // namespace deltawire::cli
