#include "cli/verbs.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <new>

#include "cli/next_step.h"
#include "cli/options.h"
#include "deltawire/version.h"
#include "kernels/kernels.h"
#include "tensor/text.h"
#ifdef DELTAWIRE_HAVE_CUDA
#include "kernels/cuda/memory.h"
#endif

namespace deltawire::cli {

namespace {

// The Python package handles this verb itself.
constexpr char kQuantize[] = "quantize";
constexpr char kHaveQuantize[] =
    "quantize is provided by the Python package and needs torch: in a clone of deltawire, pip "
    "install '.[quantize]', then python -m deltawire quantize --help";

void add_quantize(Command& app, Context& context, Call*) {
  make_verb(app, context, kQuantize, "Write a checkpoint as a quantised one: fp8, nvfp4, int4, ...",
            "  deltawire quantize ckpt out --like quantised-ckpt\n"
            "  deltawire quantize ckpt out --format fp8-block\n\n"
            "The Python package provides this verb and needs torch for it. In a clone:\n"
            "  pip install '.[quantize]'\n"
            "  python -m deltawire quantize --help");
}

struct VerbGroup {
  const char* heading;
  std::vector<AddVerb> verbs;
  bool with_lab = false;  // the verbs of lab/ come first
};

// In the order of --help.
const VerbGroup kGroups[] = {
    {"You run engines", {add_follow, add_pull, add_status, add_doctor}},
    {"You train", {add_publish, add_quantize, add_keygen}},
    {"You maintain a chain",
     {add_log, add_serve, add_compact, add_mirror, add_pin, add_gc, add_fsck}},
    {"You use slime, miles or TRL on one side", {add_import, add_export}},
    {"You have checkpoints and deltas in files", {add_diff, add_apply, add_verify, add_inspect}},
    {"You try it out and measure", {}, true},
};

std::string shared_options_help() {
  Command shared("Options that many verbs share.", "deltawire VERB");
  StoreOptions store;
  LogOptions log;
  MetricsOptions metrics;
  add_store_options(&shared, &store);
  add_log_options(&shared, &log);
  add_metrics_options(&shared, &metrics);
  return shared.help("deltawire VERB");
}

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

// The verbs of lab/, if this build has them.
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

// The first unknown option typed, which usually explains other errors too.
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
    return fmt::format("unexpected argument: {}", words.empty() ? "" : quote(words[0]));
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

// Verbs that process weights use kernels.
Status check_kernels() {
  if (unknown_kernels().empty()) return {};
  return invalid_argument(fmt::format(
      "DELTAWIRE_KERNELS={} cannot run here; see deltawire --version", unknown_kernels()));
}

// The GPU in use; empty, with the reason in `why`: none.
std::string gpu_name(std::string* why) {
#ifdef DELTAWIRE_HAVE_CUDA
  const Result<cuda::DeviceInfo> info = cuda::device_info();
  if (info.ok()) return info->name;
  *why = "compiled in, no GPU here";
#else
  *why = "not compiled in";
#endif
  return {};
}

// --version: of the program, and what it runs on.
int show_version(const Context& context) {
  std::vector<std::string> names;
  for (const Kernels* target : available_kernels()) names.emplace_back(target->name);
  const bool known = unknown_kernels().empty();
  std::string why;
  const std::string gpu = gpu_name(&why);
  context.say("deltawire " + std::string(version()));
  context.print("kernels  {}{}", fmt::join(names, ", "),
                known ? fmt::format("; in use: {}", kernels().name) : "");
  context.say("cuda     " + (gpu.empty() ? why : gpu));
  if (!known) {
    return context.fail(
        invalid_argument(fmt::format("DELTAWIRE_KERNELS={} is not one of those that run here: {}",
                                     unknown_kernels(), fmt::join(names, ", "))));
  }
  context.emit({{"version", version()},
                {"available", names},
                {"chosen", kernels().name},
                {"cuda", gpu.empty() ? Json() : Json(gpu)}});
  return context.succeed();
}

// Printed without arguments: what the program is, {} how to try it, and the first verbs.
constexpr std::string_view kFirstWords =
    R"(deltawire keeps inference engines bit-identical to a trainer.
It ships only changed weights.

{}You run engines:
  deltawire follow STORE LOCAL --notify sglang=http://HOST:PORT
                                          fetch, patch, reload, continuously
  deltawire status STORE                  which engine serves which version
You train:
  deltawire publish CHECKPOINT STORE      after each save
  deltawire publish --watch FOLDER STORE  all that a trainer saves there
You maintain a chain:
  deltawire compact STORE                 merge deltas for late replicas
  deltawire gc STORE --keep 200           remove old versions
  deltawire fsck STORE                    check every byte

STORE is a folder or s3://BUCKET/PREFIX. LOCAL is a folder for one replica.
All commands: deltawire --help
)";
constexpr std::string_view kSeeItWork =
    R"(See it work:
  deltawire demo                          a trainer, three replicas, a crash

)";

int run_command_line(int argc, char** argv, const std::vector<AddVerb>& lab) {
  Context context;
  Call call;
  Command app("deltawire keeps inference engines bit-identical to a trainer.", "deltawire");
  bool ignored = false;  // --version is answered before words are parsed
  app.add_flag("--version", ignored, "print the version, instruction sets and GPU, and exit");
  app.require_verb();
  app.set_footer(
      "More:\n"
      "  deltawire VERB --help     explains a verb, with examples\n"
      "  deltawire --help options  options that many verbs share: store, log, metrics\n\n"
      "Exit status: 0 done; 1 verify found a difference; 2 bad arguments; 3 unsupported; 4 not "
      "found; 5 conflict; 6 corruption; 7 base mismatch; 8 i/o error; 9 unavailable (worth a "
      "retry); 10 out of memory; 11 device; 12 cancelled; 13 internal error.");
  add_verbs(app, context, &call, lab);
  // Errors are printed as JSON if --json is given anywhere.
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
  const std::string_view first = argv[1], second = argc > 2 ? argv[2] : "";
  if (first == "--version") return show_version(context);
  if ((first == "--help" || first == "-h") && second == "options") {
    print_out(shared_options_help());
    return context.succeed();
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
      context.emit({{"verb", context.verb}, {"help", parsed.text}});
      if (!context.json) print_out(parsed.text);
      return context.succeed();
    case Parsed::Kind::kMistake:
    case Parsed::Kind::kTooMany:
      return context.fail(bad_command_line(app, parsed));
  }
  if (Status status = check_kernels(); !status.ok()) {
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
