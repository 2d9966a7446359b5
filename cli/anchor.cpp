#include <fmt/format.h>

#include "cli/options.h"
#include "cli/table.h"
#include "cli/verbs.h"
#include "deltawire/maintain.h"

namespace deltawire::cli {
namespace {

struct AnchorArguments {
  std::string store;
  std::optional<uint64_t> version;
  StoreOptions store_options;
  Keys keys;
  WorkOptions work;
};

Status anchor(const Context& context, AnchorArguments& options) {
  const auto make = [&]() -> Result<AnchorReport> {
    ProgressBar bar(context, "anchor");
    options.work.progress = bar.callback();
    options.work.threads = context.threads;
    DW_ASSIGN_OR_RETURN(auto store, open_store(options.store, options.store_options));
    DW_ASSIGN_OR_RETURN(const Chain chain, Chain::open(std::move(store), options.keys));
    return make_anchor(chain, options.version, options.work);
  };
  DW_ASSIGN_OR_RETURN(const AnchorReport report, make());
  context.emit({{"run", report.run},
                {"version", report.version},
                {"written", report.written},
                {"bytes", report.bytes},
                {"files", report.num_files},
                {"seconds", report.seconds}});
  if (report.written) {
    context.print("anchor    version {}, {} in {}", report.version,
                  human_bytes(double(report.bytes)), plural(report.num_files, "file"));
    context.print("time      {}", seconds(report.seconds));
  } else {
    context.print("anchor    version {} is stored whole already", report.version);
  }
  return {};
}

}  // namespace

void add_anchor(Command& app, Context& context, Call* call) {
  Command* verb = make_verb(app, context, "anchor",
                            "Store a version of a chain whole: late replicas begin there",
                            "  deltawire anchor /mnt/shared/run7          the newest version\n"
                            "  deltawire anchor s3://bucket/run7 400 --work /scratch");
  auto* const options = set_call(verb, context, call, anchor);
  verb->add_option("STORE", options->store, "a folder, s3://BUCKET/PREFIX or file:///PATH")
      ->required();
  add_version(verb, "VERSION", &options->version, "which one (default: the newest)");
  add_work_options(verb, &options->work, &options->keys);
  verb->add_flag("--plain-files", options->work.plain_files,
                 "as a plain checkpoint, larger, which engines can load from the store");
  add_threads(verb, context);
  add_store_options(verb, &options->store_options);
}

}  // namespace deltawire::cli
