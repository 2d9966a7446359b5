#include <fmt/format.h>

#include "cli/options.h"
#include "cli/table.h"
#include "cli/verbs.h"
#include "deltawire/maintain.h"
#include "tensor/text.h"

namespace deltawire::cli {
namespace {

struct CompactArguments {
  std::string store;
  StoreOptions store_options;
  Keys keys;
  CompactOptions compact;
  bool anchor = false, plain_files = false;
};

Json to_json(const CompactReport& report) {
  Json merged = Json::array();
  for (const MergedDelta& one : report.merged) {
    merged.push_back({{"base", one.base},
                      {"version", one.version},
                      {"written", one.written},
                      {"skipped", one.skipped},
                      {"bytes", one.bytes},
                      {"separate_bytes", one.separate_bytes},
                      {"seconds", one.seconds}});
  }
  return {{"run", report.run},
          {"merged", merged},
          {"there", report.num_there},
          {"seconds", report.seconds}};
}

void say_report(const Context& context, const CompactReport& report) {
  uint64_t made = 0, bytes = 0;
  for (const MergedDelta& one : report.merged) {
    const std::string span = fmt::format("{} to {}", one.base, one.version);
    if (!one.written) {
      context.print("skipped   {}: {}", span, escape_controls(one.skipped));
      continue;
    }
    ++made;
    bytes += one.bytes;
    context.print("merged    {}: {} instead of {}", span, human_bytes(double(one.bytes)),
                  human_bytes(double(one.separate_bytes)));
  }
  context.print("made      {}, {}; {} there before", plural(made, "merged delta"),
                human_bytes(double(bytes)), report.num_there);
  context.print("time      {}", seconds(report.seconds));
}

void say_anchor(const Context& context, const AnchorReport& report) {
  context.emit({{"run", report.run},
                {"version", report.version},
                {"written", report.written},
                {"bytes", report.bytes},
                {"files", report.num_files},
                {"seconds", report.seconds}});
  if (!report.written) {
    context.print("anchor    version {} is stored whole already", report.version);
    return;
  }
  context.print("anchor    version {}, {} in {}", report.version, human_bytes(double(report.bytes)),
                plural(report.num_files, "file"));
  context.print("time      {}", seconds(report.seconds));
}

Status compact(const Context& context, CompactArguments& options) {
  std::optional<ProgressBar> bar(std::in_place, context, options.anchor ? "anchor" : "compact");
  WorkOptions& work = options.compact.work;
  work.progress = bar->callback();
  work.threads = context.threads;
  work.plain_files = options.plain_files;
  DW_ASSIGN_OR_RETURN(auto store, open_store(options.store, options.store_options));
  DW_ASSIGN_OR_RETURN(const Chain chain, Chain::open(std::move(store), options.keys));
  if (options.anchor) {
    DW_ASSIGN_OR_RETURN(const AnchorReport report, make_anchor(chain, options.compact.upto, work));
    bar.reset();
    say_anchor(context, report);
    return {};
  }
  DW_ASSIGN_OR_RETURN(const CompactReport report, compact_chain(chain, options.compact));
  bar.reset();
  context.emit(to_json(report));
  say_report(context, report);
  return {};
}

}  // namespace

void add_compact(Command& app, Context& context, Call* call) {
  Command* verb =
      make_verb(app, context, "compact", "Add merged deltas or an anchor: late replicas fetch less",
                "  deltawire compact /mnt/shared/run7          spans of 4, 16 and 64 versions\n"
                "  deltawire compact s3://bucket/run7 --span 8,64 --upto 512 --work /scratch\n"
                "  deltawire compact s3://bucket/run7 --anchor    store the newest version whole\n"
                "  deltawire compact s3://bucket/run7 --anchor --upto 400");
  auto* const options = set_call(verb, context, call, compact);
  CompactOptions& compact_options = options->compact;
  verb->add_option("STORE", options->store, "a folder, s3://BUCKET/PREFIX or file:///PATH")
      ->required();
  Option* const anchor =
      verb->add_flag("--anchor", options->anchor,
                     "no merged deltas: store the newest version, or that of --upto, whole");
  verb->add_flag("--plain-files", options->plain_files,
                 "the anchor as a plain checkpoint, larger, which engines can load from the store")
      ->needs(anchor);
  verb->add_option("--span", compact_options.spans,
                   "numbers of versions that merged deltas span (default 4,16,64)")
      ->delimiter(',')
      ->between(uint64_t{2}, uint64_t{1} << 32)
      ->excludes(anchor);
  add_version(verb, "--from", &compact_options.from, "begin at this version (default 0)")
      ->excludes(anchor);
  add_version(verb, "--upto", &compact_options.upto, "end at this version (default: the newest)");
  add_codec(verb, &compact_options.codec, "codec of merged deltas (default auto)", {"auto"})
      ->excludes(anchor);
  add_bytes(verb, "--part-size", &compact_options.part_bytes,
            "maximum size of a part (default 64MiB)")
      ->excludes(anchor);
  add_bytes(verb, "--memory-limit", &compact_options.memory_limit, "memory limit (default 2GiB)")
      ->excludes(anchor);
  add_work_options(verb, &compact_options.work, &options->keys);
  add_threads(verb, context);
  add_store_options(verb, &options->store_options);
}

}  // namespace deltawire::cli
