#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <new>

#include "cli/verbs.h"
#include "deltawire/version.h"
#include "kernels/kernels.h"

namespace deltawire::cli {

CLI::App* make_verb(CLI::App& app, Context& context, const std::string& name,
                    const std::string& description, const std::string& examples) {
  CLI::App* verb = app.add_subcommand(name, description);
  verb->footer("Examples:\n" + examples);
  verb->add_flag("--json", context.json, "print one JSON object on stdout and nothing else there");
  verb->add_flag("-q,--quiet", context.quiet, "print no report and no progress");
  return verb;
}

void add_threads(CLI::App* verb, Context& context) {
  verb->add_option("-j,--threads", context.threads, "threads to use (default: one per core)")
      ->check(CLI::Range(1, 1024));
}

namespace {

// clang-format off: one line each, in the order of --help
constexpr AddVerb kVerbs[] = {
    add_publish, add_pull,     add_follow, add_status,  add_log,        add_show,
    add_plan,    add_compact,  add_anchor, add_pin,     add_unpin,      add_gc,
    add_fsck,    add_keygen,   add_diff,   add_apply,   add_verify,     add_inspect,
    add_bench,   add_simulate, add_demo,   add_kernels, add_completion,
};
// clang-format on

int run_command_line(int argc, char** argv) {
  Context context;
  Run run;
  CLI::App app("deltawire ships only the weights that changed, bit-exact.", "deltawire");
  app.set_version_flag("--version", "deltawire " + std::string(version()));
  app.require_subcommand(1);
  app.footer(
      "`deltawire VERB --help` explains a verb, with examples.\n"
      "Exit status: 0 done; 1 verify found a difference; 2 bad arguments; 3 unsupported; 4 not "
      "found;\n"
      "5 conflict; 6 corruption; 7 base mismatch; 8 i/o error; 9 unavailable (worth a retry);\n"
      "10 out of memory; 11 device; 12 cancelled; 13 internal error.");
  for (const AddVerb add : kVerbs) add(app, context, &run);
  const auto verbs = app.get_subcommands({});
  const auto is_verb = [&](std::string_view name) {
    return std::any_of(verbs.begin(), verbs.end(),
                       [&](const CLI::App* verb) { return verb->get_name() == name; });
  };
  if (argc > 1 && argv[1][0] != '-' && !is_verb(argv[1])) {
    return context.fail(
        invalid_argument(fmt::format("there is no verb \"{}\"; see deltawire --help", argv[1])));
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
    const bool in_verb = !app.get_subcommands().empty();
    return context.fail(
        invalid_argument(fmt::format("{}; see deltawire {}--help", error.what(),
                                     in_verb ? app.get_subcommands()[0]->get_name() + " " : "")));
  }
  if (!unknown_kernels().empty()) {
    return context.fail(invalid_argument(fmt::format(
        "DELTAWIRE_KERNELS={} cannot run here; see deltawire kernels", unknown_kernels())));
  }
  listen_for_interrupts();
  return run();
}

}  // namespace
}  // namespace deltawire::cli

int main(int argc, char** argv) {
  using deltawire::Status;
  const deltawire::cli::Context plain;
  try {
    return deltawire::cli::run_command_line(argc, argv);
  } catch (const std::bad_alloc&) {
    return plain.fail(deltawire::out_of_memory("the process could not get more memory"));
  } catch (const std::exception& error) {
    return plain.fail(deltawire::internal_error(error.what()));
  }
}
