#include <fmt/format.h>

#include "cli/bridge/options.h"
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
  MetricsOptions metrics;
};

Json import_json(const ImportedVersion& imported) {
  Json json = to_json(imported.published);
  json["read_seconds"] = imported.read_seconds;
  json["seconds"] = imported.seconds;
  json["base"] = imported.base;
  json["source"] = imported.source ? foreign_json(*imported.source) : Json();
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
    const StepLoop loop{arguments_.bridge.follow,
                        arguments_.bridge.interval,
                        "import",
                        "bridge.failed",
                        [this] { return import_next(); },
                        [this] { return importer_ && importer_->done(); },
                        [this] { importer_.reset(); }};
    DW_RETURN_IF_ERROR(loop.run());
    if (num_imported_ == 0 && !arguments_.bridge.follow) return nothing();
    return {};
  }

 private:
  Result<ImportOptions> options() const {
    ImportOptions options = arguments_.how;
    options.dialect = arguments_.bridge.dialect;
    options.range = arguments_.bridge.range();
    options.source_may_be_empty = arguments_.bridge.follow;
    options.memory_bytes = arguments_.bridge.memory_bytes;
    // With --base and without --follow, an empty store means a new run.
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
  Progress progress_;
  uint64_t num_imported_ = 0;
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
      "  deltawire import slime /shared/deltas /mnt/run7 --follow        and new ones\n"
      "  deltawire import trl /shared/bucket s3://bucket/run7\n"
      "Version 12 of SRC becomes version 12 of the chain; CKPT becomes the version before the "
      "first. An existing chain is continued. With --json, one object per version.");
  auto* const options = set_call(verb, context, call, import_versions);
  add_dialect(verb, &options->bridge);
  verb->add_option("SRC", options->source, "the folder or bucket with their versions")->required();
  verb->add_option("STORE", options->store,
                   "the chain: a folder, s3://BUCKET/PREFIX or file:///PATH")
      ->required();
  verb->add_option("--base", options->how.base,
                   "the checkpoint that the run began with; needed for a new chain unless the "
                   "first version is whole");
  verb->add_option("--work", options->bridge.work,
                   "folder that keeps the model as the chain's head has it (default: "
                   "~/.cache/deltawire/imports/RUN)");
  verb->add_flag("--source-moved", options->how.source_moved,
                 "SRC is the source of this chain under a new path");
  verb->add_flag("--missing-is-unchanged", options->how.missing_is_unchanged,
                 "take a version that is missing in SRC, but followed by later ones, as unchanged "
                 "(TRL writes no file then)");
  add_bridge_options(verb, context, &options->bridge);
  PublishOptions& publish = options->how.publish;
  add_codec(verb, &publish.codec, "auto (default): the smallest of each tensor", {"auto"});
  verb->add_flag(
      "--new-run", publish.new_run,
      "begin a new run even if the work folder belongs to a run that the store does not have");
  verb->add_flag("--single-writer", publish.single_writer,
                 "there is no other publisher: allow a store without conditional put");
  add_key_options(verb, &publish.keys);
  add_metrics_options(verb, &options->metrics);
}

}  // namespace deltawire::cli
