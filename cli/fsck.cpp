#include "chain/fsck.h"

#include <fmt/format.h>

#include "chain/keys.h"
#include "cli/chain_args.h"
#include "cli/units.h"
#include "cli/verbs.h"
#include "maintain/check_states.h"
#include "tensor/text.h"

namespace deltawire::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMostFindings = 50;

struct FsckArguments {
  ChainArgs chain;
  bool quick = false;
  WorkOptions work;
};

void say_some(const Context& context, const char* what, const std::vector<std::string>& lines) {
  for (size_t i = 0; i < std::min(kMostFindings, lines.size()); ++i) {
    context.say(fmt::format("{}: {}", what, escape_controls(lines[i])));
  }
  if (lines.size() > kMostFindings) {
    context.say(fmt::format("and {} more (--json lists all)", lines.size() - kMostFindings));
  }
}

int fsck(const Context& context, const FsckArguments& options) {
  const double start = now_seconds();
  Result<Chain> chain = open_chain(options.chain);
  if (!chain.ok()) return context.fail(chain.status());
  if (options.chain.trust.empty()) {  // signatures must hold, whoever made them
    chain = Chain::open(chain->shared_store(), {{}, check_signatures_only()});
    if (!chain.ok()) return context.fail(chain.status());
  }
  const Result<FsckReport> result = [&] {
    ProgressBar bar(context, "fsck");
    FsckOptions fsck_options;
    fsck_options.contents = !options.quick;
    fsck_options.threads = context.threads;
    fsck_options.progress = bar.callback();
    return check_chain(*chain, fsck_options);
  }();
  if (!result.ok()) return context.fail(result.status());
  FsckReport report = *result;
  StateCheckReport decoded;
  if (!options.quick) {
    ProgressBar bar(context, "decode");
    WorkOptions work = options.work;
    work.threads = context.threads;
    work.progress = bar.callback();
    Result<StateCheckReport> checked = check_states(*chain, work);
    if (!checked.ok()) return context.fail(checked.status());
    decoded = std::move(*checked);
    report.problems.insert(report.problems.end(), decoded.problems.begin(), decoded.problems.end());
  }
  say_some(context, "problem", report.problems);
  say_some(context, "warning", report.warnings);
  const std::string beside =
      report.num_files == 0 ? "" : fmt::format("{}, ", plural(report.num_files, "side file"));
  context.say(
      fmt::format("{}: {}, {}, {}, {}{} in {}", report.problems.empty() ? "sound" : "DAMAGED",
                  plural(report.num_versions, "version"), plural(report.num_edges, "shortcut"),
                  plural(report.num_parts, "part"), beside, human_bytes(double(report.bytes)),
                  seconds(now_seconds() - start)));
  context.emit({{"sound", report.problems.empty()},
                {"head", report.head},
                {"versions", report.num_versions},
                {"shortcuts", report.num_edges},
                {"schemas", report.num_schemas},
                {"parts", report.num_parts},
                {"side_files", report.num_files},
                {"bytes", report.bytes},
                {"decoded", decoded.num_versions},
                {"orphans", report.num_orphans},
                {"orphan_bytes", report.orphan_bytes},
                {"waiting", report.num_waiting},
                {"waiting_bytes", report.waiting_bytes},
                {"problems", report.problems},
                {"warnings", report.warnings},
                {"seconds", now_seconds() - start}});
  return report.problems.empty() ? context.succeed() : int(Code::kCorruption);
}

}  // namespace

void add_fsck(Command& app, Context& context, Run* run) {
  Command* verb = make_verb(
      app, context, "fsck",
      "Check a whole chain: records, links, parts, digests; exit 6 if it is "
      "damaged",
      "  deltawire fsck s3://bucket/run\n"
      "  deltawire fsck store --quick       only whether parts are there, not their contents\n"
      "  deltawire fsck store --work /scratch\n"
      "  deltawire fsck store --trust trainer.pub");
  auto options = std::make_shared<FsckArguments>();
  add_chain_args(verb, &options->chain);
  verb->add_flag("--quick", options->quick, "do not read parts");
  verb->add_option("--work", options->work.folder,
                   "folder for the decoded model (default: in memory)");
  add_threads(verb, context);
  verb->callback(
      [&context, run, options] { *run = [&context, options] { return fsck(context, *options); }; });
}

}  // namespace deltawire::cli
