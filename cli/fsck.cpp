#include <fmt/format.h>

#include "cli/options.h"
#include "cli/table.h"
#include "cli/verbs.h"
#include "deltawire/maintain.h"
#include "tensor/text.h"

namespace deltawire::cli {
namespace {

constexpr size_t kMostFindings = 50;

struct FsckArguments {
  ChainArgs chain;
  FsckOptions fsck;
};

void say_some(const Context& context, const char* what, const std::vector<std::string>& lines) {
  for (size_t i = 0; i < std::min(kMostFindings, lines.size()); ++i) {
    context.print("{}: {}", what, escape_controls(lines[i]));
  }
  if (lines.size() > kMostFindings) {
    context.print("and {} more (--json lists all)", lines.size() - kMostFindings);
  }
}

int fsck(const Context& context, FsckArguments& options) {
  const double start = steady_seconds();
  const Result<Chain> chain = open_chain(options.chain);
  if (!chain.ok()) return context.fail(chain.status());
  const Result<FsckReport> result = [&] {
    ProgressBar bar(context, "fsck");
    options.fsck.work.threads = context.threads;
    options.fsck.work.progress = bar.callback();
    return fsck_chain(*chain, options.fsck);
  }();
  if (!result.ok()) return context.fail(result.status());
  const FsckReport& report = *result;
  say_some(context, "problem", report.problems);
  say_some(context, "warning", report.warnings);
  const std::string beside =
      report.num_files == 0 ? "" : fmt::format("{}, ", plural(report.num_files, "side file"));
  context.print("{}: {}, {}, {}, {}{} in {}", report.sound() ? "sound" : "DAMAGED",
                plural(report.num_versions, "version"), plural(report.num_hops, "hop record"),
                plural(report.num_parts, "part"), beside, human_bytes(double(report.bytes)),
                seconds(steady_seconds() - start));
  context.emit({{"sound", report.sound()},
                {"head", report.head},
                {"versions", report.num_versions},
                {"hop_records", report.num_hops},
                {"schemas", report.num_schemas},
                {"parts", report.num_parts},
                {"side_files", report.num_files},
                {"bytes", report.bytes},
                {"decoded", report.num_decoded},
                {"orphans", report.num_orphans},
                {"orphan_bytes", report.orphan_bytes},
                {"waiting", report.num_waiting},
                {"waiting_bytes", report.waiting_bytes},
                {"problems", report.problems},
                {"warnings", report.warnings},
                {"seconds", steady_seconds() - start}});
  if (report.sound()) return context.succeed();
  context.say(
      "next:  copy damaged objects from a mirror, if there is one; otherwise publish with "
      "--anchor-every 1, and deltawire gc STORE --keep N removes the damaged versions later");
  return int(Code::kCorruption);
}

}  // namespace

void add_fsck(Command& app, Context& context, Call* call) {
  Command* verb =
      make_verb(app, context, "fsck", "Check a whole chain, every byte; exit 6 if it is damaged",
                "  deltawire fsck s3://bucket/run\n"
                "  deltawire fsck store --quick    whether parts are there, not their bytes\n"
                "  deltawire fsck store --work /scratch\n"
                "  deltawire fsck store --trust trainer.pub");
  auto* const options = set_call(verb, context, call, fsck);
  add_chain_args(verb, &options->chain);
  verb->add_flag("--quick", options->fsck.quick, "do not read parts");
  verb->add_option("--work", options->fsck.work.folder,
                   "folder for the decoded model (default: in memory)");
  add_threads(verb, context);
}

}  // namespace deltawire::cli
