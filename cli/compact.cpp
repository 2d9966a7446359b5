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
                      {"alone", one.alone},
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
    context.print("merged    {}: {} instead of {}{}", span, human_bytes(double(one.bytes)),
                  human_bytes(double(one.separate_bytes)),
                  one.alone ? ", from the deltas alone" : "");
  }
  context.print("made      {}, {}; {} there before", plural(made, "merged delta"),
                human_bytes(double(bytes)), report.num_there);
  context.print("time      {}", seconds(report.seconds));
}

Status compact(const Context& context, CompactArguments& options) {
  const auto run = [&]() -> Result<CompactReport> {
    ProgressBar bar(context, "compact");
    options.compact.work.progress = bar.callback();
    options.compact.work.threads = context.threads;
    DW_ASSIGN_OR_RETURN(auto store, open_store(options.store, options.store_options));
    DW_ASSIGN_OR_RETURN(const Chain chain, Chain::open(std::move(store), options.keys));
    return compact_chain(chain, options.compact);
  };
  DW_ASSIGN_OR_RETURN(const CompactReport report, run());
  context.emit(to_json(report));
  say_report(context, report);
  return {};
}

}  // namespace

void add_compact(Command& app, Context& context, Call* call) {
  Command* verb = make_verb(
      app, context, "compact", "Add merged deltas: late replicas fetch one instead of many",
      "  deltawire compact /mnt/shared/run7          spans of 4, 16 and 64 versions\n"
      "  deltawire compact s3://bucket/run7 --span 8,64 --upto 512 --work /scratch");
  auto* const options = set_call(verb, context, call, compact);
  CompactOptions& compact_options = options->compact;
  verb->add_option("STORE", options->store, "a folder, s3://BUCKET/PREFIX or file:///PATH")
      ->required();
  verb->add_option("--span", compact_options.spans,
                   "how many versions a merged delta spans (default 4,16,64)")
      ->delimiter(',')
      ->between(uint64_t{2}, uint64_t{1} << 32);
  add_version(verb, "--from", &compact_options.from, "begin at this version (default 0)");
  add_version(verb, "--upto", &compact_options.upto, "end at this version (default: the newest)");
  add_codec(verb, &compact_options.codec,
            "of merged deltas that cannot be made from deltas alone (default auto)", {"auto"});
  add_bytes(verb, "--part-size", &compact_options.part_bytes, "of one part (default 64MiB)");
  add_bytes(verb, "--memory-limit", &compact_options.memory_limit,
            "what it may take (default 2GiB)");
  add_work_options(verb, &compact_options.work, &options->keys);
  add_threads(verb, context);
  add_store_options(verb, &options->store_options);
}

}  // namespace deltawire::cli
