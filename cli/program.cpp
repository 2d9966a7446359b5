#include "cli/program.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <new>

#include "cli/options.h"
#include "cli/suggest.h"
#include "deltawire/version.h"
#include "kernels/kernels.h"
#include "ship/ship.h"
#include "tensor/text.h"

namespace deltawire::cli {

namespace {

// The Python package does this one itself, before it starts this program.
constexpr char kQuantize[] = "quantize";
constexpr char kHaveQuantize[] =
    "quantize is a verb of the Python package, which needs torch for it: pip install "
    "'deltawire[quantize]', then python -m deltawire quantize --help";

void add_quantize(Command& app, Context& context, Call*) {
  make_verb(app, context, kQuantize, "Write a checkpoint as a quantised one: fp8, nvfp4, int4, ...",
            std::string("  deltawire quantize ckpt out --like quantised-ckpt\n"
                        "  deltawire quantize ckpt out --format fp8-block\n") +
                kHaveQuantize);
}

struct VerbGroup {
  const char* heading;
  std::vector<AddVerb> verbs;
  bool with_lab = false;  // the verbs of lab/ come first
};

// In the order of --help.
const VerbGroup kGroups[] = {
    {"You run engines", {add_follow, add_pull, add_status, add_plan, add_plan_shards}},
    {"You train", {add_publish, add_quantize, add_keygen}},
    {"You maintain a chain",
     {add_log, add_show, add_compact, add_anchor, add_mirror, add_pin, add_unpin, add_gc,
      add_forget, add_fsck}},
    {"You use slime, miles or TRL on one side", {add_import, add_export}},
    {"You have checkpoints and deltas in files", {add_diff, add_apply, add_verify, add_inspect}},
    {"You try it out and measure", {add_kernels}, true},
    {"Help", {add_help, add_completion}},
};

void add_verbs(Command& app, Context& context, Call* call, const std::vector<AddVerb>& lab) {
  for (const VerbGroup& group : kGroups) {
    std::vector<AddVerb> verbs = group.with_lab ? lab : std::vector<AddVerb>();
    verbs.insert(verbs.end(), group.verbs.begin(), group.verbs.end());
    for (const AddVerb add : verbs) {
      add(app, context, call);
      app.verbs().back()->set_group(group.heading);
    }
  }
}

// What a build without lab/ is asked for all the same.
constexpr std::string_view kLabVerbs[] = {"demo", "simulate", "bench"};

std::string did_you_mean(const std::string& word) {
  return word.empty() ? "" : fmt::format(", did you mean {}?", word);
}

Status no_such_verb(const Command& app, const std::string& typed) {
  if (std::find(std::begin(kLabVerbs), std::end(kLabVerbs), typed) != std::end(kLabVerbs)) {
    return unsupported(
        fmt::format("{0} is not in the program of the Python package; the Debian package has it, "
                    "and a clone: make build && build-program/deltawire {0}",
                    typed));
  }
  std::vector<std::string> verbs;
  for (const auto& verb : app.verbs()) verbs.push_back(verb->name());
  return invalid_argument(fmt::format("there is no verb {}{}; see deltawire --help", quote(typed),
                                      did_you_mean(nearest_word(typed, verbs))));
}

// What was typed that looks like an option and is none: it explains most of what else is wrong.
std::string unknown_option(const Command& app) {
  for (const std::string& word : app.remaining()) {
    if (word.size() > 1 && word[0] == '-') return word.substr(0, word.find('='));
  }
  return {};
}

std::string describe(const Command& verb, const Parsed& mistake) {
  if (const std::string typed = unknown_option(verb); !typed.empty()) {
    std::vector<std::string> names;
    for (const auto& option : verb.options()) {
      for (const std::string& name : option->long_names()) names.push_back("--" + name);
    }
    return fmt::format("there is no option {}{}", quote(typed),
                       did_you_mean(nearest_word(typed, names)));
  }
  if (mistake.kind == Parsed::Kind::kTooMany) {
    const auto words = verb.remaining();
    return fmt::format("an argument too many: {}", words.empty() ? "" : quote(words[0]));
  }
  if (mistake.text.starts_with("A subcommand")) return "a verb is missing";
  return mistake.text;
}

Status bad_command_line(const Command& app, const Parsed& mistake) {
  const Command* const chosen = app.chosen();
  const Command& verb = chosen == nullptr ? app : *chosen;
  return invalid_argument(fmt::format("{}; see deltawire {}--help", describe(verb, mistake),
                                      chosen == nullptr ? "" : verb.name() + " "));
}

// Those that look at weights run on kernels; the rest must work to find out what went wrong.
Status check_kernels(const Command& verb) {
  const std::string& name = verb.name();
  if (unknown_kernels().empty() || name == "kernels" || name == "help" || name == "completion") {
    return {};
  }
  return invalid_argument(fmt::format("DELTAWIRE_KERNELS={} cannot run here; see deltawire kernels",
                                      unknown_kernels()));
}

// For whoever types the name alone: what it is, {} where to see it work, and the first verbs.
constexpr std::string_view kFirstWords =
    R"(deltawire keeps inference engines bit-identical to a trainer. It ships only changed weights.

{}You run engines:
  deltawire follow STORE LOCAL --notify sglang=http://HOST:PORT  fetch, patch, reload; for ever
  deltawire status STORE                                         which engine serves which version
You train:
  deltawire publish CHECKPOINT STORE                             after each save
  deltawire publish --watch FOLDER STORE                         all that a trainer saves there
You maintain a chain:
  deltawire compact STORE                                        merge deltas for late replicas
  deltawire gc STORE --keep 200                                  remove old versions
  deltawire fsck STORE                                           check every byte

STORE is a folder or s3://BUCKET/PREFIX. LOCAL is a folder for one replica.
All commands: deltawire --help
)";
constexpr std::string_view kSeeItWork =
    R"(See it work:
  deltawire demo                                                 a trainer, three replicas, a crash

)";

int run_command_line(int argc, char** argv, const std::vector<AddVerb>& lab) {
  register_ship_stores();
  Context context;
  Call call;
  Command app("deltawire keeps inference engines bit-identical to a trainer.", "deltawire");
  app.set_version("deltawire " + std::string(version()));
  app.require_verb();
  app.set_footer(
      "`deltawire VERB --help` explains a verb, with examples.\n"
      "Exit status: 0 done; 1 verify found a difference; 2 bad arguments; 3 unsupported; 4 not "
      "found;\n"
      "5 conflict; 6 corruption; 7 base mismatch; 8 i/o error; 9 unavailable (worth a retry);\n"
      "10 out of memory; 11 device; 12 cancelled; 13 internal error.");
  add_verbs(app, context, &call, lab);
  // Mistakes are told in the form that was asked for, wherever they are.
  context.json = std::any_of(argv, argv + argc,
                             [](const char* word) { return std::string_view(word) == "--json"; });
  const auto is_verb = [&](std::string_view name) {
    return std::any_of(app.verbs().begin(), app.verbs().end(),
                       [&](const auto& verb) { return verb->name() == name; });
  };
  if (argc <= 1) {
    print_out(fmt::format(kFirstWords, is_verb("demo") ? kSeeItWork : ""));
    return int(Code::kInvalidArgument);
  }
  if (argv[1][0] != '-' && !is_verb(argv[1])) {
    return context.fail(no_such_verb(app, argv[1]));
  }
  if (is_verb(argv[1])) context.verb = argv[1];
  if (context.verb == kQuantize && std::none_of(argv + 2, argv + argc, [](std::string_view word) {
        return word == "--help" || word == "-h";
      })) {
    return context.fail(unsupported(kHaveQuantize));
  }
  const Parsed parsed = app.parse({argv + 1, argv + argc});
  switch (parsed.kind) {
    case Parsed::Kind::kDone:
      break;
    case Parsed::Kind::kText:
      print_out(parsed.text);
      return context.succeed();
    case Parsed::Kind::kMistake:
    case Parsed::Kind::kTooMany:
      return context.fail(bad_command_line(app, parsed));
  }
  if (Status status = check_kernels(*app.chosen()); !status.ok()) {
    return context.fail(status);
  }
  listen_for_interrupts();
  return call();
}

int guarded_run(int argc, char** argv, const std::vector<AddVerb>& lab) {
  const Context plain;
  try {
    return run_command_line(argc, argv, lab);
  } catch (const std::bad_alloc&) {
    return plain.fail(out_of_memory("the process could not get more memory"));
  } catch (const std::exception& error) {
    return plain.fail(internal_error(error.what()));
  }
}

}  // namespace

int run_program(int argc, char** argv, const std::vector<AddVerb>& lab) {
  keep_standard_descriptors();
  return finish_printing(guarded_run(argc, argv, lab));
}

}  // namespace deltawire::cli
