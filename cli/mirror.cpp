#include <fmt/format.h>

#include "cli/metrics.h"
#include "cli/options.h"
#include "cli/step_loop.h"
#include "cli/table.h"
#include "cli/verbs.h"
#include "deltawire/mirror.h"
#include "replica/follow_watch.h"

namespace deltawire::cli {
namespace {

struct MirrorArguments {
  std::string source, mirror, trust, grace = "1h";
  StoreOptions source_options, mirror_options;
  MirrorOptions how;
  std::optional<uint64_t> keep;
  bool follow = false;
  double interval = 5;
  LogOptions log;
  MetricsOptions metrics;
};

std::string what(const Mirrored& one) {
  switch (one.kind) {
    case HopKind::kMerged:
      return fmt::format("merged    {} to {}", *one.base, one.version);
    case HopKind::kAnchor:
      return fmt::format("anchor    {}", one.version);
    case HopKind::kVersion:
      break;
  }
  return fmt::format("version   {}", one.version);
}

Json mirrored_json(const Mirrored& one, const Mirror& mirror) {
  Json json = {{"run", mirror.run()},
               {"kind", one.kind == HopKind::kVersion ? "version" : hop_kind_name(one.kind)},
               {"version", one.version},
               {"base", nullptr},
               {"begins", one.begins},
               {"objects", one.num_objects},
               {"there", one.num_there},
               {"bytes", one.bytes},
               {"seconds", one.seconds}};
  if (one.base) json["base"] = *one.base;
  if (const auto& collected = one.collected) {
    json["collected"] = {{"removed_versions", collected->num_versions},
                         {"deleted_objects", collected->num_deleted},
                         {"deleted_bytes", collected->deleted_bytes}};
  }
  return json;
}

void say_mirrored(const Context& context, const Mirrored& one) {
  std::string line = fmt::format("{}, {} in {}", what(one), human_bytes(double(one.bytes)),
                                 plural(one.num_objects - one.num_there, "object"));
  if (one.num_there != 0) line += fmt::format("; {} there already", one.num_there);
  if (one.collected && one.collected->num_versions != 0) {
    line += fmt::format("; removed {}", plural(one.collected->num_versions, "version"));
  }
  context.say(line);
}

class MirrorCall {
 public:
  MirrorCall(const Context& context, const MirrorArguments& arguments)
      : context_(context), arguments_(arguments) {}

  Status run() {
    DW_ASSIGN_OR_RETURN(options_, options());
    DW_ASSIGN_OR_RETURN(source_, open_store(arguments_.source, arguments_.source_options));
    DW_ASSIGN_OR_RETURN(store_, open_store(arguments_.mirror, arguments_.mirror_options));
    FollowWatch watch(*source_);
    const StepLoop loop{arguments_.follow,
                        arguments_.interval,
                        "mirror",
                        "mirror.failed",
                        [this] { return round(); },
                        [] { return false; },
                        [this] { mirror_.reset(); },
                        [&](double pause) { watch.wait(pause, was_interrupted); }};
    DW_RETURN_IF_ERROR(loop.run());
    return arguments_.follow ? Status() : finish();
  }

 private:
  Result<MirrorOptions> options() const {
    MirrorOptions options = arguments_.how;
    if (options.work.empty()) {
      DW_ASSIGN_OR_RETURN(options.work, cache_folder("mirrors"));
    }
    if (arguments_.keep) {
      const Result<uint64_t> grace = parse_duration(arguments_.grace);
      if (!grace.ok()) return Status(grace.status()).at("--grace");
      GcOptions keep;
      keep.keep = *arguments_.keep;
      keep.grace_seconds = int64_t(*grace);
      options.keep = keep;
    }
    return options;
  }

  Status open() {
    if (mirror_) return {};
    options_.progress = [this](uint64_t done, uint64_t total) {
      return progress_ ? progress_(done, total) : !was_interrupted();
    };
    DW_ASSIGN_OR_RETURN(const Chain chain, Chain::open(source_, {.trust = arguments_.trust}));
    DW_ASSIGN_OR_RETURN(Mirror opened, Mirror::open(chain, store_, options_));
    mirror_.emplace(std::move(opened));
    return {};
  }

  Result<bool> round() {
    ProgressBar bar(context_, "mirror");
    progress_ = bar.callback();
    Result<bool> moved = copy_one();
    progress_ = nullptr;
    return moved;
  }

  Result<bool> copy_one() {
    DW_RETURN_IF_ERROR(open());
    if (arguments_.how.verify && !repaired_) DW_RETURN_IF_ERROR(repair());
    Result<std::optional<Mirrored>> copied = mirror_->next();
    record_lag(mirror_->head(), mirror_->version());
    DW_RETURN_IF_ERROR(Status(copied.status()));
    if (!*copied) return false;
    const Mirrored& one = **copied;
    ++num_copied_;
    bytes_ += one.bytes;
    record_mirror(one);
    context_.emit(mirrored_json(one, *mirror_));
    say_mirrored(context_, one);
    flush_out();
    return true;
  }

  // Repairs once; later damage needs another call.
  Status repair() {
    DW_ASSIGN_OR_RETURN(const MirrorRepair found, mirror_->repair());
    repaired_ = true;
    context_.emit({{"kind", "verified"},
                   {"versions", found.num_versions},
                   {"hop_records", found.num_hops},
                   {"objects", found.num_objects},
                   {"repaired_objects", found.num_repaired},
                   {"repaired_bytes", found.repaired_bytes}});
    context_.print("verified  {} of {}; {} copied again", plural(found.num_objects, "object"),
                   plural(found.num_versions, "version"), found.num_repaired);
    flush_out();
    return {};
  }

  Status finish() const {
    if (!mirror_->version()) return not_found(arguments_.source + ": nothing was published yet");
    context_.emit({{"kind", "done"},
                   {"run", mirror_->run()},
                   {"version", *mirror_->version()},
                   {"records", num_copied_},
                   {"bytes", bytes_}});
    context_.say(num_copied_ == 0
                     ? fmt::format("nothing new: the mirror is at version {}", *mirror_->version())
                     : fmt::format("mirror    at version {}, {} copied", *mirror_->version(),
                                   human_bytes(double(bytes_))));
    return {};
  }

  const Context& context_;
  const MirrorArguments& arguments_;
  MirrorOptions options_;
  std::shared_ptr<Store> source_, store_;
  std::optional<Mirror> mirror_;
  Progress progress_;
  bool repaired_ = false;
  uint64_t num_copied_ = 0, bytes_ = 0;
};

int mirror(const Context& context, const MirrorArguments& arguments) {
  start_log(arguments.log);
  const auto metrics_server = start_metrics(arguments.metrics);
  if (!metrics_server.ok()) return context.fail(metrics_server.status());
  return context.finish(MirrorCall(context, arguments).run());
}

}  // namespace

void add_mirror(Command& app, Context& context, Call* call) {
  Command* verb = make_verb(
      app, context, "mirror", "Copy a chain to another store, byte for byte, once or continuously",
      "  deltawire mirror s3://bucket/run7 /mnt/local/run7        what is there, once\n"
      "  deltawire mirror s3://us/run7 s3://eu/run7 --dest-region eu-west-1 --follow\n"
      "  deltawire mirror s3://eu/run7 /mnt/rack4/run7 --follow   a mirror of a mirror\n"
      "Replicas pull from DEST as from SOURCE. With --json, one object per version, merged delta "
      "and anchor. May be killed at any time; the next call continues. With --follow it ends on "
      "SIGINT or SIGTERM, and waits during an outage of either store. Store options of DEST begin "
      "with --dest-.");
  auto* const options = set_call(verb, context, call, mirror);
  verb->add_option("SOURCE", options->source, "the chain: a folder, s3://BUCKET/PREFIX")
      ->required();
  verb->add_option("DEST", options->mirror, "the copy: a folder, s3://BUCKET/PREFIX")->required();
  Option* const since = add_version(
      verb, "--since", &options->how.since,
      "begin at the newest anchor at or below this version (default: at the newest anchor)");
  verb->add_flag("--all", options->how.all, "begin at the oldest version")->excludes(since);
  Option* const keep = add_whole_number(verb, "--keep", &options->keep,
                                        "after each version, run gc on DEST and keep this many "
                                        "versions; see deltawire gc (default: remove nothing)",
                                        1, 9'999'999'999);
  verb->add_option("--grace", options->grace,
                   "with --keep: how long objects stay after their version (default 1h)")
      ->needs(keep);
  verb->add_flag("--verify", options->how.verify,
                 "first read everything in DEST, and copy again what is damaged or missing");
  verb->add_option("--trust", options->trust,
                   "public keys; refuse versions that none of them signed");
  Option* const follow = verb->add_flag("--follow", options->follow,
                                        "keep running, for every new version, until interrupted");
  add_seconds(verb, "--interval", &options->interval,
              "with --follow: polling interval, varied by up to a fifth (default 5); in a "
              "local folder a new version is seen at once",
              0.01, 86400)
      ->needs(follow);
  verb->add_flag("--single-writer", options->how.single_writer,
                 "there is no other mirror into DEST: allow a store without conditional put");
  add_whole_number(verb, "--transfers", &options->how.transfers, "objects at once (default 8)", 1,
                   256);
  verb->add_option("--work", options->how.work,
                   "folder for objects being copied (default: ~/.cache/deltawire/mirrors)");
  verb->add_option("--name", options->how.name,
                   "name of this mirror in `status SOURCE` (default: host and DEST)");
  verb->add_flag("!--no-heartbeat", options->how.heartbeat, "write no heartbeat to SOURCE");
  add_store_options(verb, &options->source_options);
  add_store_options(verb, &options->mirror_options, "dest-");
  add_log_options(verb, &options->log, LogLevel::kInfo);
  add_metrics_options(verb, &options->metrics);
}

}  // namespace deltawire::cli
