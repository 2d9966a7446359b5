// The main job, end to end: a trainer that publishes, three replicas that follow, one of them
// killed in the middle of a patch, one that comes late; and the proof that all hold the same bits.
#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <thread>

#include "base/folder.h"
#include "base/json.h"
#include "cli/options.h"
#include "cli/table.h"
#include "deltawire/delta.h"
#include "deltawire/replica.h"
#include "lab/demo/live.h"
#include "lab/demo/process.h"
#include "lab/verbs.h"

namespace deltawire::cli {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

struct DemoArguments {
  std::string params;
  unsigned steps = 12;
  bool page = false;
  std::string listen = "127.0.0.1:8410";
  std::string keep;  // a folder to work in, and to leave as it is
};

constexpr double kPatience = 120;  // seconds that any wait may take

struct Published {
  uint64_t version = 0, bytes = 0;
  double seconds = 0;
};

class Demo {
 public:
  Demo(const Context& context, const DemoArguments& options, fs::path work)
      : context_(context), options_(options), work_(std::move(work)), start_(steady_seconds()) {}

  Status run() {
    DW_RETURN_IF_ERROR(main_job());
    if (!options_.page) {
      context_.say("to watch a chain and its replicas on a page: deltawire demo --page");
      return {};
    }
    DW_ASSIGN_OR_RETURN(auto store, deltawire::open_store(store_, {}));
    return run_live(context_,
                    {.store = store_,
                     .work = work_,
                     .num_checkpoints = options_.steps + 1,
                     .address = options_.listen},
                    std::move(store));
  }

 private:
  Status main_job() {
    announce("the store is a folder: " + store_);
    DW_RETURN_IF_ERROR(simulate());
    DW_RETURN_IF_ERROR(train());
    DW_RETURN_IF_ERROR(compact());
    DW_RETURN_IF_ERROR(join_late());
    for (const std::string name : {"a", "b", "c"}) DW_RETURN_IF_ERROR(prove(name));
    return compare();
  }

  void announce(const std::string& line) const {
    context_.say(fmt::format("{:6.1f} s  {}", steady_seconds() - start_, line));
  }

  Result<std::string> deltawire(const std::vector<std::string>& args) const {
    return run_to_end(own_program(), args, work_ / "last.log");
  }
  Result<Json> deltawire_json(std::vector<std::string> args) const {
    args.push_back("--json");
    DW_ASSIGN_OR_RETURN(const std::string text, deltawire(args));
    Json json = parse_json(text);
    if (json.is_discarded()) return internal_error(args.front() + ": did not print JSON: " + text);
    return json;
  }
  fs::path replica(const std::string& name) const { return work_ / ("replica-" + name); }
  fs::path checkpoint(unsigned step) const {
    return work_ / "train" / fmt::format("v{}.safetensors", step);
  }

  Status simulate() {
    announce(fmt::format("a bf16 model of {} parameters; {} training steps that change 1.2 % each",
                         options_.params, options_.steps));
    return deltawire({"simulate", "--params", options_.params, "--steps",
                      std::to_string(options_.steps), "--density", "0.012", "--seed", "1", "-o",
                      (work_ / "train").string(), "--quiet"})
        .status();
  }

  Status publish(unsigned step) {
    DW_ASSIGN_OR_RETURN(const Json json,
                        deltawire_json({"publish", checkpoint(step).string(), store_, "--snapshot",
                                        (work_ / "snapshot").string()}));
    published_.push_back({json.at("version"), json.at("bytes"), json.at("seconds")});
    announce(fmt::format("trainer    published version {}: {} in {}", published_.back().version,
                         human_bytes(double(published_.back().bytes)),
                         seconds(published_.back().seconds)));
    return {};
  }

  Result<Process> follow(const std::string& name) const {
    return Process::start(own_program(),
                          {"follow", store_, replica(name).string(), "--interval", "0.2", "--name",
                           "replica-" + name, "--until", std::to_string(options_.steps)},
                          work_ / ("replica-" + name + ".log"));
  }

  // Polls until `done` says so; a state file that is being replaced reads as "not yet".
  Status wait_for(const std::string& name, Process* process, const std::string& what,
                  const std::function<bool(const ReplicaState&)>& done,
                  std::chrono::microseconds pause) const {
    for (const double start = steady_seconds(); steady_seconds() - start < kPatience;) {
      const Result<ReplicaState> state = read_replica_state(replica(name));
      if (state.ok() && done(*state)) return {};
      if (process != nullptr && !process->running() && !(state.ok() && done(*state))) {
        return internal_error("replica " + name + " ended early; see " +
                              (work_ / ("replica-" + name + ".log")).string());
      }
      if (pause.count() != 0) std::this_thread::sleep_for(pause);
    }
    return unavailable("replica " + name + ": " + what + " took longer than " + seconds(kPatience));
  }

  Status train() {
    DW_RETURN_IF_ERROR(publish(0));
    DW_ASSIGN_OR_RETURN(Process a, follow("a"));
    DW_ASSIGN_OR_RETURN(Process b, follow("b"));
    const auto at_least = [](uint64_t version) {
      return [version](const ReplicaState& state) { return state.version >= version; };
    };
    const std::chrono::milliseconds pause(5);
    DW_RETURN_IF_ERROR(wait_for("a", &a, "the first pull", at_least(0), pause));
    DW_RETURN_IF_ERROR(wait_for("b", &b, "the first pull", at_least(0), pause));
    announce("replicas   a and b hold version 0 and follow");
    const unsigned victim_step = std::max(1U, options_.steps / 3);
    for (unsigned step = 1; step <= options_.steps; ++step) {
      if (step != victim_step) {
        DW_RETURN_IF_ERROR(publish(step));
        continue;
      }
      // Everything before has arrived; the next patch is the one that is cut short.
      DW_RETURN_IF_ERROR(wait_for("b", &b, "following", at_least(step - 1), pause));
      std::thread killer([&] { kill_in_patch(&b, step); });
      const Status status = publish(step);
      killer.join();
      DW_RETURN_IF_ERROR(Status(status));
      DW_ASSIGN_OR_RETURN(b, follow("b"));
      announce("replica b  started again");
    }
    DW_RETURN_IF_ERROR(wait_for("a", nullptr, "following", at_least(options_.steps), pause));
    DW_RETURN_IF_ERROR(wait_for("b", nullptr, "following", at_least(options_.steps), pause));
    a.wait();
    b.wait();
    return {};
  }

  // SIGKILL at the moment its state says that files are in motion, or right after: a small patch is
  // quick.
  void kill_in_patch(Process* process, uint64_t step) const {
    const Status seen = wait_for(
        "b", process, "the patch",
        [step](const ReplicaState& state) {
          return state.patching_to.has_value() || state.version >= step;
        },
        std::chrono::microseconds(0));
    process->kill(SIGKILL);
    process->wait();
    const Result<ReplicaState> state = read_replica_state(replica("b"));
    if (seen.ok() && state.ok() && state->patching_to) {
      announce(
          fmt::format("replica b  killed with SIGKILL in the middle of the patch from {} to {}",
                      state->version, *state->patching_to));
    } else {
      announce("replica b  killed with SIGKILL");
    }
  }

  // What a chain that is looked after has for those who come late.
  Status compact() {
    DW_ASSIGN_OR_RETURN(const Json json, deltawire_json({"compact", store_, "--span",
                                                         std::to_string(options_.steps)}));
    for (const Json& merged : json.at("merged")) {
      if (!merged.at("written").get<bool>()) continue;
      announce(fmt::format("chain      {} deltas merged into one: {} instead of {}", options_.steps,
                           human_bytes(merged.at("bytes").get<double>()),
                           human_bytes(merged.at("separate_bytes").get<double>())));
    }
    return {};
  }

  Status join_late() {
    DW_ASSIGN_OR_RETURN(const Json json, deltawire_json({"pull", store_, replica("c").string(),
                                                         "--name", "replica-c"}));
    late_bytes_ = json.at("bytes");
    announce(fmt::format(
        "replica c  came late and caught up to version {} by the cheapest path: {}, {}",
        json.at("version").get<uint64_t>(), plural(json.at("hops").get<uint64_t>(), "hop"),
        human_bytes(double(late_bytes_))));
    return {};
  }

  Status prove(const std::string& name) const {
    DW_ASSIGN_OR_RETURN(const VerifyReport report,
                        verify_checkpoints(checkpoint(options_.steps), replica(name), {}));
    if (report.num_different != 0 || !report.differences.empty()) {
      return corruption("replica " + name + " differs from the trainer in " +
                        plural(report.num_different, "element"));
    }
    announce(fmt::format("replica {}  is bit-identical to the trainer: {} compared", name,
                         plural(report.num_elements, "element")));
    return {};
  }

  Status compare() {
    const fs::path before = checkpoint(options_.steps - 1), after = checkpoint(options_.steps);
    DW_ASSIGN_OR_RETURN(const Json bench,
                        deltawire_json({"bench", "codecs", before.string(), after.string(),
                                        "--sizes", "--codec", "trl-v1", "slime"}));
    uint64_t sent = 0;
    for (size_t i = 1; i < published_.size(); ++i) sent += published_[i].bytes;
    const double full = double(fs::file_size(after)) * options_.steps;
    context_.say("");
    context_.say(
        fmt::format("bytes that {} steps put on the wire, for each replica", options_.steps));
    const auto row = [&](const std::string& name, double bytes) {
      context_.say(fmt::format("  {:<44} {:>10}   {:>7.1f} x", name, human_bytes(bytes),
                               bytes / double(sent)));
    };
    row("full broadcast", full);
    Json peers = Json::object();
    for (const Json& peer : bench.at("rows")) {
      const std::string name = peer.at("name");
      const double bytes = peer.at("bytes").get<double>() * options_.steps;
      peers[name] = bytes;
      row(name + " (last step, times " + std::to_string(options_.steps) + ")", bytes);
    }
    row("deltawire, manifests aside", double(sent));
    context_.emit({{"store", store_},
                   {"steps", options_.steps},
                   {"full_bytes", uint64_t(full)},
                   {"sent_bytes", sent},
                   {"late_bytes", late_bytes_},
                   {"peers_bytes", peers},
                   {"identical", true},
                   {"seconds", steady_seconds() - start_}});
    announce("done");
    return {};
  }

  const Context& context_;
  const DemoArguments& options_;
  const fs::path work_;
  const double start_;
  const std::string store_ = (work_ / "store").string();
  std::vector<Published> published_;
  uint64_t late_bytes_ = 0;
};

Status run_demo(const Context& context, const DemoArguments& options) {
  if (options.keep.empty()) {
    DW_ASSIGN_OR_RETURN(const WorkFolder work, WorkFolder::make({}));
    return Demo(context, options, work.path()).run();
  }
  const fs::path work = fs::absolute(options.keep);
  std::error_code ignored;
  if (fs::exists(work) && !fs::is_empty(work, ignored)) {
    return invalid_argument(options.keep + ": is not empty");
  }
  DW_RETURN_IF_ERROR(make_folder(work));
  return Demo(context, options, work).run();
}

int demo(const Context& context, DemoArguments options) {
  // Replicas by the dozen want smaller ones.
  if (options.params.empty()) options.params = options.page ? "5M" : "50M";
  const Status status = run_demo(context, options);
  return status.ok() ? context.succeed() : context.fail(status);
}

}  // namespace

void add_demo(Command& app, Context& context, Call* call) {
  Command* verb = make_verb(
      app, context, "demo", "The main job in a minute: a trainer, three replicas, a crash",
      "  deltawire demo\n"
      "  deltawire demo --page             continue, with a page to watch, until Ctrl-C\n"
      "  deltawire demo --keep demo/       leave everything there to look at");
  auto options = std::make_shared<DemoArguments>();
  verb->add_option("--params", options->params,
                   "parameters of the simulated model (default 50M; with --page 5M)");
  add_whole_number(verb, "--steps", &options->steps, "training steps to publish (default 12)", 2,
                   1000);
  Option* const page = verb->add_flag(
      "--page", options->page,
      "then continue to train with a fleet of replicas, and serve a page that shows it");
  verb->add_option("--listen", options->listen, "with --page: its address (default 127.0.0.1:8410)")
      ->needs(page);
  verb->add_option("--keep", options->keep, "work in this folder, and keep it");
  verb->callback([&context, call, options] {
    *call = [&context, options] { return demo(context, *options); };
  });
}

}  // namespace deltawire::cli
