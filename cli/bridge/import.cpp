#include <fmt/format.h>

#include <limits>

#include "base/log.h"
#include "cli/bridge/options.h"
#include "cli/bridge/pull_calls.h"
#include "cli/metrics.h"
#include "cli/options.h"
#include "cli/publish/publish.h"
#include "cli/table.h"
#include "cli/verbs.h"

namespace deltawire::cli {
namespace {

struct ImportArguments {
  BridgeVerbOptions bridge;
  std::string source, store;
  ImportOptions how;
  ListenOptions listen;
  MetricsOptions metrics;
};

Json import_json(const ImportedVersion& imported) {
  Json json = to_json(imported.published);
  json["read_seconds"] = imported.read_seconds;
  json["seconds"] = imported.seconds;
  json["base"] = imported.base;
  if (!imported.source) {
    json["source"] = nullptr;
    return json;
  }
  const ForeignSummary& source = *imported.source;
  json["source"] = {{"dialect", source.dialect},   {"version", source.version},
                    {"full", source.full},         {"encoding", source.encoding},
                    {"checksum", source.checksum}, {"tensors", source.num_tensors},
                    {"files", source.num_files},   {"bytes", source.file_bytes}};
  return json;
}

void say_import(const Context& context, const ImportedVersion& imported) {
  if (!imported.source) {
    context.print("{}  {}", imported.base ? "base" : "no file", one_line(imported.published));
    return;
  }
  const ForeignSummary& source = *imported.source;
  context.print("{} {}{}, {} in {}  {}", source.dialect, source.encoding,
                source.checksum.empty() ? "" : " " + source.checksum,
                human_bytes(double(source.file_bytes)), plural(source.num_files, "file"),
                one_line(imported.published));
}

class ImportCall {
 public:
  ImportCall(const Context& context, const ImportArguments& arguments)
      : context_(context), arguments_(arguments) {}

  Status run() {
    DW_ASSIGN_OR_RETURN(import_, options());
    DW_RETURN_IF_ERROR(listen());
    const StepLoop loop{
        arguments_.bridge.follow,
        arguments_.bridge.interval,
        "import",
        "bridge.failed",
        [this] { return round(); },
        [this] { return importer_ && importer_->done(); },
        [this] { importer_.reset(); },
        calls_ ? [this](double pause) { calls_->wait(pause); } : std::function<void(double)>()};
    const Status status = loop.run();
    if (calls_) calls_->end_import(status, head_);
    DW_RETURN_IF_ERROR(status);
    if (num_imported_ == 0 && !arguments_.bridge.follow) return nothing();
    return {};
  }

 private:
  Result<ImportOptions> options() const {
    ImportOptions options = arguments_.how;
    options.dialect = arguments_.bridge.dialect;
    options.range = arguments_.bridge.range();
    options.source_may_be_empty = arguments_.bridge.follow;
    if (!arguments_.bridge.follow) options.settle_seconds = 0;
    options.memory_bytes = arguments_.bridge.memory_bytes;
    // Who names a base, and waits for the end of it, means a new run where the store holds none.
    options.publish.new_run =
        options.publish.new_run || (!arguments_.bridge.follow && !options.base.empty());
    options.publish.limits.threads = context_.threads;
    SnapshotInFolder place{arguments_.bridge.work, arguments_.bridge.work.empty()};
    if (place.per_run) {
      DW_ASSIGN_OR_RETURN(place.folder, cache_folder("imports"));
    }
    options.publish.snapshot = std::move(place);
    return options;
  }

  Status listen() {
    if (arguments_.listen.address.empty()) return {};
    if (arguments_.bridge.dialect != "slime") {
      return invalid_argument("--listen answers trainers of slime; the dialect is " +
                              arguments_.bridge.dialect);
    }
    const auto open_chain = [this]() -> Result<Chain> {
      DW_ASSIGN_OR_RETURN(auto store,
                          open_store(arguments_.store, arguments_.bridge.store_options));
      return Chain::open(std::move(store), arguments_.how.publish.keys);
    };
    DW_ASSIGN_OR_RETURN(calls_, PullCalls::start(arguments_.listen, arguments_.source, open_chain));
    context_.emit({{"url", calls_->url()}, {"port", calls_->port()}});
    context_.say("listening on " + calls_->url());
    flush_out();
    return {};
  }

  Result<bool> round() {
    const uint64_t begun = calls_ ? calls_->begin_look() : 0;
    Result<bool> moved = import_next();
    if (calls_ && !(moved.ok() && *moved)) calls_->end_look(begun, moved.status(), head_);
    return moved;
  }

  Result<bool> import_next() {
    ProgressBar bar(context_, "import");
    progress_ = bar.callback();
    if (!importer_) {
      import_.publish.progress = [this](uint64_t done, uint64_t total) {
        return progress_ ? progress_(done, total) : !was_interrupted();
      };
      const StoreOptions& how = arguments_.bridge.store_options;
      DW_ASSIGN_OR_RETURN(auto source, open_store(arguments_.source, how));
      DW_ASSIGN_OR_RETURN(auto store, open_store(arguments_.store, how));
      DW_ASSIGN_OR_RETURN(Importer opened,
                          Importer::open(std::move(source), std::move(store), import_));
      importer_.emplace(std::move(opened));
    }
    DW_ASSIGN_OR_RETURN(const std::optional<ImportedVersion> imported, importer_->next());
    progress_ = nullptr;
    head_ = importer_->head();
    say_waiting(importer_->waits_for());
    if (!imported) return false;
    ++num_imported_;
    record_publish(imported->published);
    context_.emit(import_json(*imported));
    say_import(context_, *imported);
    for (const std::string& warning : imported->published.warnings) {
      context_.say("warning   " + warning);
    }
    flush_out();
    return true;
  }

  // Once for each reason.
  void say_waiting(const std::string& reason) {
    if (!reason.empty() && reason != waits_for_) {
      const bool never = std::isinf(arguments_.how.settle_seconds);
      log_event(
          LogLevel::kWarning, "bridge.waiting",
          {{"reason",
            reason + (never ? "; --settle SECONDS takes it after so long without a change" : "")}});
    }
    waits_for_ = reason;
  }

  // Nothing was there to import: is that what was wanted?
  Status nothing() const {
    if (!importer_ || !importer_->head()) {
      return not_found(arguments_.source + ": holds no complete version of " +
                       arguments_.bridge.dialect +
                       "; check the path and the dialect: deltawire inspect " + arguments_.source);
    }
    const BridgeRange range = arguments_.bridge.range();
    if (range.from && *range.from > *importer_->head()) {
      return not_found(
          fmt::format("{}: holds no complete version {}", arguments_.source, *range.from));
    }
    context_.emit({{"version", *importer_->head()}, {"committed", false}});
    context_.print("nothing new: version {} is imported already", *importer_->head());
    return {};
  }

  const Context& context_;
  const ImportArguments& arguments_;
  ImportOptions import_;
  std::optional<Importer> importer_;
  std::optional<uint64_t> head_;  // of the chain, as far as was seen
  Progress progress_;
  uint64_t num_imported_ = 0;
  std::string waits_for_;
  std::unique_ptr<PullCalls> calls_;  // none: nobody listens
};

int import_versions(const Context& context, const ImportArguments& arguments) {
  start_log(arguments.bridge.log);
  const auto metrics_server = start_metrics(arguments.metrics);
  if (!metrics_server.ok()) return context.fail(metrics_server.status());
  return context.finish(ImportCall(context, arguments).run());
}

}  // namespace

void add_import(Command& app, Context& context, Call* call) {
  Command* verb = make_verb(
      app, context, "import", "Make versions of a chain from another project's files",
      "  deltawire import slime /shared/deltas /mnt/run7 --base ckpt/   all there is\n"
      "  deltawire import slime /shared/deltas /mnt/run7 --follow        and what comes\n"
      "  deltawire import trl /shared/bucket s3://bucket/run7\n"
      "  deltawire import slime /shared/deltas run7 --follow --listen 0.0.0.0:30500\n"
      "Their version 12 becomes version 12; CKPT becomes the one before the first. A chain is "
      "continued where it ends. With --json, one object per version.");
  auto* const options = set_call(verb, context, call, import_versions);
  // Quiet proves nothing: a slow rank is quiet, too.
  options->how.settle_seconds = std::numeric_limits<double>::infinity();
  add_dialect(verb, &options->bridge);
  verb->add_option("SRC", options->source, "the folder or bucket of their versions")->required();
  verb->add_option("STORE", options->store,
                   "the chain: a folder, s3://BUCKET/PREFIX or file:///PATH")
      ->required();
  verb->add_option("--base", options->how.base,
                   "the checkpoint that the run began with; for a new chain, unless their first "
                   "version is whole");
  verb->add_option("--work", options->bridge.work,
                   "folder that keeps the model as the chain's head has it (default: "
                   "~/.cache/deltawire/imports/RUN)");
  verb->add_flag("--source-moved", options->how.source_moved,
                 "SRC is the source of this chain, at another place than before");
  verb->add_flag("--missing-is-unchanged", options->how.missing_is_unchanged,
                 "a version that SRC does not have, though it has later ones, changed nothing (TRL "
                 "writes no file then)");
  Option* const follow = add_bridge_options(verb, context, &options->bridge);
  add_seconds(verb, "--settle", &options->how.settle_seconds,
              "with --follow: a version that nothing marks as complete is taken after so long "
              "without a change (default: never; it waits for DONE or the next version)",
              0, 86400);
  PublishOptions& publish = options->how.publish;
  add_codec(verb, &publish.codec, "auto (default): the smallest of each tensor", {"auto"});
  verb->add_flag(
      "--new-run", publish.new_run,
      "begin a new run, though the work folder is of a run that the store does not have");
  verb->add_flag("--single-writer", publish.single_writer,
                 "there is no other publisher: allow a store without conditional put");
  add_key_options(verb, &publish.keys);
  add_listen_options(verb, follow, &options->listen);
  add_metrics_options(verb, &options->metrics);
}

}  // namespace deltawire::cli
