#include <fmt/format.h>

#include <thread>

#include "base/log.h"
#include "cli/bridge/options.h"
#include "cli/context.h"
#include "cli/options.h"
#include "cli/replica_options.h"
#include "cli/table.h"
#include "cli/verbs.h"
#include "dialect/slime/slime_index.h"
#include "notify/notifier.h"
#include "replica/follow_watch.h"

namespace deltawire::cli {

namespace {

namespace fs = std::filesystem;

// ---- slime's engines are told of a version that was exported: pull, pause, reload, continue

struct SlimeEngineOptions {
  std::vector<std::string> urls;
  // The folder that engines pull into and load; empty: they load the version's own folder.
  std::string checkpoint;
  CallLimits limits = {.timeout_seconds = 600};  // a pull of many versions is one call
};

// All engines at once, while they go on with the version that they have.
std::vector<Status> pull_all(const std::vector<std::string>& urls, const EngineOptions& options,
                             const PullWeights& request) {
  std::vector<Status> outcomes(urls.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < urls.size(); ++i) {
    threads.emplace_back([&, i] { outcomes[i] = call_pull_weights(urls[i], options, request); });
  }
  for (std::thread& thread : threads) thread.join();
  return outcomes;
}

void add_slime_engine_options(Command* verb, SlimeEngineOptions* options) {
  Option* const notify =
      verb->add_option("--notify", options->urls,
                       "tell this engine of slime (its SGLang): pull, pause, reload, continue; may "
                       "be repeated. A key comes from DELTAWIRE_ENGINE_API_KEY")
          ->type_name("URL")
          ->repeatable();
  verb->add_option("--notify-checkpoint", options->checkpoint,
                   "with --notify: slime's --update-weight-local-checkpoint-dir, the folder that "
                   "engines pull into; not needed with --full")
      ->type_name("DIR")
      ->needs(notify);
  add_call_limits(verb, "--notify", "an engine", &options->limits);
}

// One outcome for each URL. An engine that cannot be reached or fails is resumed, and holds up no
// other one. Being told again is harmless: a pull takes an engine through all versions it missed.
std::vector<EngineOutcome> notify_slime_engines(const SlimeEngineOptions& options,
                                                const std::vector<std::string>& urls,
                                                const fs::path& source, uint64_t version) {
  const EngineOptions calls = engine_options(options.limits);
  std::vector<Status> pulled(urls.size());
  if (!options.checkpoint.empty()) {
    pulled = pull_all(urls, calls, {options.checkpoint, source.string(), version});
  }
  const fs::path checkpoint = options.checkpoint.empty() ? source / slime::folder_name(version)
                                                         : fs::path(options.checkpoint);
  std::vector<EngineOutcome> outcomes(urls.size());
  Notifier notifier(was_interrupted);
  std::vector<size_t> notified;
  for (size_t i = 0; i < urls.size(); ++i) {
    outcomes[i].engine = "sglang=" + urls[i];
    outcomes[i].resumed = true;  // it was not paused yet
    auto engine = make_engine(outcomes[i].engine, calls);
    outcomes[i].status = pulled[i].ok() ? engine.status() : pulled[i];
    if (!outcomes[i].status.ok()) continue;
    notifier.add(std::move(*engine));
    notified.push_back(i);
  }
  Change change;
  change.version = version;
  change.in_place = false;
  NotifyOutcome all = notifier.around(change, [&]() -> Result<fs::path> { return checkpoint; });
  for (size_t k = 0; k < notified.size(); ++k) {
    outcomes[notified[k]] = std::move(all.engines[k]);
    EngineOutcome& one = outcomes[notified[k]];
    if (one.status.ok() && !all.patch.ok()) one.status = all.patch;
  }
  return outcomes;
}

// ---- the export

struct ExportArguments {
  BridgeVerbOptions bridge;
  std::string store, target, encoding, checksum, trust;
  uint64_t buffer_bytes = ExportOptions().buffer_bytes;
  std::optional<uint64_t> anchor_every;
  bool full = false;
  SlimeEngineOptions engines;
};

Json export_json(const ExportedVersion& exported) {
  const ForeignSummary& target = exported.target;
  Json json = {{"dialect", target.dialect},   {"version", target.version},
               {"full", target.full},         {"encoding", target.encoding},
               {"checksum", target.checksum}, {"tensors", target.num_tensors},
               {"files", target.num_files},   {"bytes", target.file_bytes}};
  json["base"] = target.base ? Json(*target.base) : nullptr;
  json["seconds"] = exported.seconds;
  json["note"] = exported.note;
  return json;
}

void say_export(const Context& context, const ExportedVersion& exported) {
  const ForeignSummary& target = exported.target;
  context.print("version {}: {} {}{}, {}, {} in {}, {}", target.version, target.dialect,
                target.encoding, target.checksum.empty() ? "" : " " + target.checksum,
                plural(target.num_tensors, "tensor"), human_bytes(double(target.file_bytes)),
                plural(target.num_files, "file"), seconds(exported.seconds));
  if (!exported.note.empty()) {
    context.print("note      {}: deltawire pull STORE CKPT --version {}", exported.note,
                  target.base.value_or(0));
  }
}

class ExportCall {
 public:
  ExportCall(const Context& context, const ExportArguments& arguments)
      : context_(context), arguments_(arguments) {}

  Status run() {
    DW_ASSIGN_OR_RETURN(export_, options());
    DW_RETURN_IF_ERROR(check_engines());
    DW_ASSIGN_OR_RETURN(store_, open_store(arguments_.store, arguments_.bridge.store_options));
    FollowWatch watch(*store_);
    const StepLoop loop{arguments_.bridge.follow,
                        arguments_.bridge.interval,
                        "export",
                        "bridge.failed",
                        [this] { return round(); },
                        [this] { return exporter_ && exporter_->done(); },
                        [this] { exporter_.reset(); },
                        [&](double pause) { watch.wait(pause, was_interrupted); }};
    DW_RETURN_IF_ERROR(loop.run());
    if (arguments_.bridge.follow && was_interrupted()) return {};
    DW_RETURN_IF_ERROR(engine_failure_);
    if (num_exported_ == 0 && !arguments_.bridge.follow) return nothing();
    return {};
  }

 private:
  Result<ExportOptions> options() const {
    ExportOptions options;
    options.dialect = arguments_.bridge.dialect;
    options.encoding = arguments_.encoding;
    options.checksum = arguments_.checksum;
    options.buffer_bytes = arguments_.buffer_bytes;
    options.range = arguments_.bridge.range();
    options.full = arguments_.full;
    options.anchor_every = arguments_.anchor_every;
    options.memory_bytes = arguments_.bridge.memory_bytes;
    options.threads = context_.threads;
    options.work = arguments_.bridge.work;
    if (options.work.empty()) {
      DW_ASSIGN_OR_RETURN(options.work, cache_folder("exports"));
    }
    return options;
  }

  Result<bool> round() {
    ProgressBar bar(context_, "export");
    progress_ = bar.callback();
    if (!exporter_) {
      export_.progress = [this](uint64_t done, uint64_t total) {
        return progress_ ? progress_(done, total) : !was_interrupted();
      };
      Keys keys;
      keys.trust = arguments_.trust;
      Result<Chain> chain = Chain::open(store_, keys);
      if (!chain.ok() && chain.status().code() == Code::kNotFound && arguments_.bridge.follow) {
        return false;
      }
      DW_RETURN_IF_ERROR(Status(chain.status()));
      DW_ASSIGN_OR_RETURN(auto target,
                          open_store(arguments_.target, arguments_.bridge.store_options));
      DW_ASSIGN_OR_RETURN(Exporter opened, Exporter::open(*chain, std::move(target), export_));
      exporter_.emplace(std::move(opened));
    }
    DW_ASSIGN_OR_RETURN(const std::optional<ExportedVersion> exported, exporter_->next());
    progress_ = nullptr;
    if (exported) {
      ++num_exported_;
      context_.emit(export_json(*exported));
      say_export(context_, *exported);
      flush_out();
    }
    // Versions that come together are told once: a pull takes an engine through all of them.
    if (exporter_->last() && (!exported || exporter_->done())) notify_engines(*exporter_->last());
    return exported.has_value();
  }

  Status check_engines() {
    const SlimeEngineOptions& engines = arguments_.engines;
    if (engines.urls.empty()) return {};
    if (arguments_.bridge.dialect != "slime") {
      return invalid_argument("--notify tells engines of slime; the dialect is " +
                              arguments_.bridge.dialect);
    }
    if (engines.checkpoint.empty() && !arguments_.full) {
      return invalid_argument(
          "--notify needs --notify-checkpoint DIR, the folder that engines pull into, or --full");
    }
    if (is_store_url(arguments_.target)) {
      return invalid_argument("--notify: engines read a folder, and DST is " + arguments_.target);
    }
    for (const std::string& url : engines.urls) {
      auto checked = check_engine_url(url);
      if (!checked.ok()) return std::move(checked).status().at("--notify");
      notified_.emplace(*checked, std::nullopt);
    }
    return {};
  }

  // Those that do not have it yet: also after a restart, for who was told last is not kept. One
  // that fails is told again later; the export goes on.
  void notify_engines(uint64_t version) {
    std::vector<std::string> urls;
    for (const auto& [url, has] : notified_) {
      if (has != version) urls.push_back(url);
    }
    if (urls.empty() || (version == tried_ && now_seconds() < next_try_)) return;
    num_failures_ = version == tried_ ? num_failures_ : 0;
    tried_ = version;
    const auto source = std::filesystem::absolute(arguments_.target).lexically_normal();
    const auto outcomes = notify_slime_engines(arguments_.engines, urls, source, version);
    engine_failure_ = {};
    for (size_t i = 0; i < urls.size(); ++i) {
      if (outcomes[i].status.ok()) {
        notified_[urls[i]] = version;
        continue;
      }
      log_event(
          LogLevel::kError, "engine.failed",
          {{"engine", outcomes[i].engine}, {"version", version}, {"error", outcomes[i].status}});
      if (engine_failure_.ok()) engine_failure_ = outcomes[i].status;
    }
    next_try_ = now_seconds() + follow_backoff(num_failures_++, arguments_.bridge.interval);
    context_.emit({{"version", version}, {"engines", to_json(outcomes)}});
    say_engines(context_, outcomes);
    flush_out();
  }

  Status nothing() const {
    if (exporter_ && exporter_->num_skipped() != 0) {
      context_.emit({{"exported", 0}, {"there", exporter_->num_skipped()}});
      context_.print("nothing new: {} there already", plural(exporter_->num_skipped(), "version"));
      return {};
    }
    const BridgeRange range = arguments_.bridge.range();
    return not_found(
        fmt::format("{}: has no version {} or later; deltawire log {} lists what it has",
                    arguments_.store, range.from.value_or(1), arguments_.store));
  }

  const Context& context_;
  const ExportArguments& arguments_;
  ExportOptions export_;
  std::shared_ptr<Store> store_;
  std::optional<Exporter> exporter_;
  Progress progress_;
  uint64_t num_exported_ = 0;
  std::map<std::string, std::optional<uint64_t>> notified_;  // by engine: the version that it took
  std::optional<uint64_t> tried_;                            // the version of the last attempt
  double next_try_ = 0;                                      // of the same version
  unsigned num_failures_ = 0;
  Status engine_failure_;  // of the last attempt
};

int export_versions(const Context& context, const ExportArguments& arguments) {
  start_log(arguments.bridge.log);
  const Status status = ExportCall(context, arguments).run();
  return context.finish(status);
}

}  // namespace

void add_export(Command& app, Context& context, Call* call) {
  Command* verb = make_verb(
      app, context, "export", "Write versions of a chain as another project's files",
      "  deltawire export slime /mnt/run7 /shared/deltas           from version 1 on\n"
      "  deltawire export slime /mnt/run7 /shared/deltas --follow  and what comes\n"
      "  deltawire export slime run7 out/ --encoding overwrite --version 7\n"
      "  deltawire export slime /mnt/run7 /shared/deltas --follow \\\n"
      "    --notify http://10.0.0.7:30000 --notify-checkpoint /nvme/ckpt\n"
      "  deltawire export trl s3://bucket/run7 s3://bucket/trl --anchor-every 20\n"
      "Version 12 becomes their version 12. What is there already is not written again. With "
      "--json, one object per version.");
  auto* const options = set_call(verb, context, call, export_versions);
  add_dialect(verb, &options->bridge);
  verb->add_option("STORE", options->store,
                   "the chain: a folder, s3://BUCKET/PREFIX or file:///PATH")
      ->required();
  verb->add_option("DST", options->target, "the folder or bucket that their readers look at")
      ->required();
  verb->add_option("--encoding", options->encoding,
                   "by its name there: xor or overwrite (slime), indices, deltas or deltas_zstd "
                   "(slime-gen1), raw or gap_delta (trl); default: theirs");
  verb->add_option("--checksum", options->checksum,
                   "by its name there: xxh3-128, adler32 or blake3 (slime); default: theirs");
  add_bytes(verb, "--buffer-size", &options->buffer_bytes,
            "where files are cut by size (default 512MiB)");
  verb->add_flag("--full", options->full, "every version whole");
  add_whole_number(verb, "--anchor-every", &options->anchor_every,
                   "every N-th version whole, where the dialect has such (trl; default 10)", 1,
                   9'999'999'999);
  verb->add_option("--work", options->bridge.work,
                   "folder that keeps the model as it was exported last (default: "
                   "~/.cache/deltawire/exports)");
  add_bridge_options(verb, context, &options->bridge);
  add_slime_engine_options(verb, &options->engines);
  verb->add_option("--trust", options->trust, "refuse a chain that no key in this file has signed");
}

}  // namespace deltawire::cli
