// The main job, end to end: a trainer that publishes, three replicas that follow, one of them
// killed in the middle of a patch, one that comes late; and the proof that all hold the same bits.
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <thread>

#include "base/json.h"
#include "cli/options.h"
#include "cli/table.h"
#include "deltawire/delta.h"
#include "deltawire/replica.h"
#include "lab/demo/process.h"
#include "lab/verbs.h"

namespace deltawire::cli {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

struct DemoArguments {
  std::string params = "50M";
  unsigned steps = 12;
  bool s3 = false;
  std::string keep;  // a folder to work in, and to leave as it is
};

constexpr double kPatience = 120;  // seconds that any wait may take

// A folder that goes away again unless it is to be kept.
class WorkFolder {
 public:
  static Result<WorkFolder> make(const std::string& keep) {
    WorkFolder folder;
    std::error_code error;
    if (!keep.empty()) {
      folder.path_ = fs::absolute(keep);
      folder.keep_ = true;
      if (fs::exists(folder.path_) && !fs::is_empty(folder.path_, error)) {
        return invalid_argument(keep + ": is not empty");
      }
      fs::create_directories(folder.path_, error);
    } else {
      std::string name = (fs::temp_directory_path() / "deltawire-demo.XXXXXX").string();
      if (::mkdtemp(name.data()) == nullptr) return io_error(name + ": cannot make folder");
      folder.path_ = name;
    }
    if (error) return io_error(folder.path_.string() + ": " + error.message());
    return folder;
  }
  ~WorkFolder() {
    std::error_code ignored;
    if (!keep_ && !path_.empty()) fs::remove_all(path_, ignored);
  }
  WorkFolder(WorkFolder&& other) noexcept
      : path_(std::exchange(other.path_, {})), keep_(other.keep_) {}
  WorkFolder& operator=(WorkFolder&&) = delete;
  const fs::path& path() const { return path_; }

 private:
  WorkFolder() = default;
  fs::path path_;
  bool keep_ = false;
};

struct Published {
  uint64_t version = 0, bytes = 0;
  double seconds = 0;
};

class Demo {
 public:
  Demo(const Context& context, const DemoArguments& options, fs::path work)
      : context_(context), options_(options), work_(std::move(work)), start_(now_seconds()) {}

  Status run() {
    DW_RETURN_IF_ERROR(open_store());
    DW_RETURN_IF_ERROR(simulate());
    DW_RETURN_IF_ERROR(train());
    DW_RETURN_IF_ERROR(compact());
    DW_RETURN_IF_ERROR(join_late());
    for (const std::string name : {"a", "b", "c"}) DW_RETURN_IF_ERROR(prove(name));
    return compare();
  }

 private:
  void announce(const std::string& line) const {
    context_.say(fmt::format("{:6.1f} s  {}", now_seconds() - start_, line));
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
  std::vector<std::string> with_store(std::vector<std::string> args) const {
    if (gateway_) args.insert(args.end(), {"--endpoint", gateway_->endpoint()});
    return args;
  }
  fs::path replica(const std::string& name) const { return work_ / ("replica-" + name); }
  fs::path checkpoint(unsigned step) const {
    return work_ / "train" / fmt::format("v{}.safetensors", step);
  }

  Status open_store() {
    if (!options_.s3) {
      store_ = (work_ / "store").string();
      announce("the store is a folder: " + store_);
      return {};
    }
    DW_ASSIGN_OR_RETURN(gateway_, Gateway::start(work_ / "rgw"));
    store_ = "s3://" + gateway_->bucket() + "/run";
    announce("the store is a bucket of a Ceph RADOS Gateway at " + gateway_->endpoint());
    return {};
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
                        deltawire_json(with_store({"publish", checkpoint(step).string(), store_,
                                                   "--snapshot", (work_ / "snapshot").string()})));
    published_.push_back({json.at("version"), json.at("bytes"), json.at("seconds")});
    announce(fmt::format("trainer    published version {}: {} in {}", published_.back().version,
                         human_bytes(double(published_.back().bytes)),
                         seconds(published_.back().seconds)));
    return {};
  }

  Result<Process> follow(const std::string& name) const {
    return Process::start(
        own_program(),
        with_store({"follow", store_, replica(name).string(), "--interval", "0.2", "--name",
                    "replica-" + name, "--until", std::to_string(options_.steps)}),
        work_ / ("replica-" + name + ".log"));
  }

  // Polls until `done` says so; a state file that is being replaced reads as "not yet".
  Status wait_for(const std::string& name, Process* process, const std::string& what,
                  const std::function<bool(const ReplicaState&)>& done,
                  std::chrono::microseconds pause) const {
    for (const double start = now_seconds(); now_seconds() - start < kPatience;) {
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
    DW_ASSIGN_OR_RETURN(
        const Json json,
        deltawire_json(with_store({"compact", store_, "--span", std::to_string(options_.steps)})));
    for (const Json& merged : json.at("merged")) {
      if (!merged.at("written").get<bool>()) continue;
      announce(fmt::format("chain      {} deltas merged into one: {} instead of {}", options_.steps,
                           human_bytes(merged.at("bytes").get<double>()),
                           human_bytes(merged.at("separate_bytes").get<double>())));
    }
    return {};
  }

  Status join_late() {
    DW_ASSIGN_OR_RETURN(
        const Json json,
        deltawire_json(with_store({"pull", store_, replica("c").string(), "--name", "replica-c"})));
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
                                        "--sizes", "--codec", "trl-v1", "slime-gen1", "slime"}));
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
                   {"seconds", now_seconds() - start_}});
    announce("done");
    return {};
  }

  const Context& context_;
  const DemoArguments& options_;
  const fs::path work_;
  const double start_;
  std::string store_;
  std::optional<Gateway> gateway_;
  std::vector<Published> published_;
  uint64_t late_bytes_ = 0;
};

int demo(const Context& context, const DemoArguments& options) {
  Result<WorkFolder> work = WorkFolder::make(options.keep);
  if (!work.ok()) return context.fail(work.status());
  const Status status = Demo(context, options, work->path()).run();
  return status.ok() ? context.succeed() : context.fail(status);
}

}  // namespace

void add_demo(Command& app, Context& context, Call* call) {
  Command* verb = make_verb(
      app, context, "demo", "The main job in a minute: a trainer, three replicas, a crash",
      "  deltawire demo                    a store in a folder\n"
      "  deltawire demo --s3               a Ceph RADOS Gateway that it starts\n"
      "  deltawire demo --keep demo/       leave everything there to look at");
  auto options = std::make_shared<DemoArguments>();
  verb->add_option("--params", options->params, "parameters of the simulated model (default 50M)");
  add_whole_number(verb, "--steps", &options->steps, "training steps to publish (default 12)", 2,
                   1000);
  verb->add_flag("--s3", options->s3, "over S3; needs Debian's ceph-mon, ceph-osd and radosgw");
  verb->add_option("--keep", options->keep, "work in this folder, and leave it there");
  verb->callback([&context, call, options] {
    *call = [&context, options] { return demo(context, *options); };
  });
}

}  // namespace deltawire::cli
