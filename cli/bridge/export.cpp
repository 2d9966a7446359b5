#include <fmt/format.h>

#include "cli/bridge/options.h"
#include "cli/context.h"
#include "cli/options.h"
#include "cli/table.h"
#include "cli/verbs.h"
#include "replica/follow_watch.h"

namespace deltawire::cli {

namespace {

struct ExportArguments {
  BridgeVerbOptions bridge;
  std::string store, target, encoding, checksum, trust;
  uint64_t buffer_bytes = ExportOptions().buffer_bytes;
  std::optional<uint64_t> anchor_every;
  bool full = false;
};

Json export_json(const ExportedVersion& exported) {
  const ForeignSummary& target = exported.target;
  Json json = foreign_json(target);
  json["base"] = or_null(target.base);
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
    return exported.has_value();
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
      "  deltawire export slime /mnt/run7 /shared/deltas           versions from 1 on\n"
      "  deltawire export slime /mnt/run7 /shared/deltas --follow  and new ones\n"
      "  deltawire export slime run7 out/ --encoding overwrite --version 7\n"
      "  deltawire export trl s3://bucket/run7 s3://bucket/trl --anchor-every 20\n"
      "Version 12 becomes their version 12. Existing versions are not written again. With "
      "--json, one object per version.");
  auto* const options = set_call(verb, context, call, export_versions);
  add_dialect(verb, &options->bridge);
  verb->add_option("STORE", options->store,
                   "the chain: a folder, s3://BUCKET/PREFIX or file:///PATH")
      ->required();
  verb->add_option("DST", options->target, "the folder or bucket that its readers read")
      ->required();
  verb->add_option(
      "--encoding", options->encoding,
      "xor or overwrite (slime); v1, raw or gap_delta (trl); default: as in that project");
  verb->add_option("--checksum", options->checksum,
                   "xxh3-128, adler32 or blake3 (slime); default: as in that project");
  add_bytes(verb, "--buffer-size", &options->buffer_bytes,
            "maximum size of a file (default 512MiB)");
  verb->add_flag("--full", options->full, "every version whole");
  add_whole_number(verb, "--anchor-every", &options->anchor_every,
                   "every N-th version whole, if the dialect has whole versions (trl; default 10)",
                   1, 9'999'999'999);
  verb->add_option("--work", options->bridge.work,
                   "folder that keeps the model as last exported (default: "
                   "~/.cache/deltawire/exports)");
  add_bridge_options(verb, context, &options->bridge);
  verb->add_option("--trust", options->trust,
                   "refuse a chain that is not signed by a key in this file");
}

}  // namespace deltawire::cli
