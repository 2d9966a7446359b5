#include "lab/demo/live.h"

#include <fmt/format.h>
#include <signal.h>

#include "cli/options.h"
#include "lab/demo/process.h"

namespace deltawire::cli {
namespace {

constexpr size_t kReplicas = 8, kStopped = 4, kKilled = 5, kStranger = 6;
constexpr double kPauseSeconds = 1.5;
// In steps: how often a replica has its trouble, how long, and how often the chain is looked after.
constexpr unsigned kTroubleEvery = 40, kTroubleSteps = 16, kMergeEvery = 16, kCollectEvery = 64;

class Fleet {
 public:
  explicit Fleet(const LiveDemo& demo) : demo_(demo) {}

  Status start() {
    for (const char* name : {"replica-a", "replica-b", "replica-c"}) {  // which have ended
      DW_RETURN_IF_ERROR(run({"status", demo_.store, "--forget", name, "--force"}));
    }
    DW_RETURN_IF_ERROR(run({"keygen", "--out", (demo_.work / "stranger").string()}));
    for (size_t i = 0; i < kReplicas; ++i) {
      DW_ASSIGN_OR_RETURN(Process replica, follow(i));
      replicas_.push_back(std::move(replica));
    }
    return {};
  }

  Status step(unsigned number) {
    const unsigned last = demo_.num_checkpoints - 1, phase = number % (2 * last);
    const unsigned at = phase <= last ? last - phase : phase - last;  // there and back
    DW_RETURN_IF_ERROR(run({"publish", checkpoint(at), demo_.store, "--snapshot",
                            (demo_.work / "snapshot").string()}));
    const unsigned trouble = number % kTroubleEvery;
    if (trouble == kTroubleEvery / 2) replicas_[kStopped].kill(SIGSTOP);
    if (trouble == (kTroubleEvery / 2 + kTroubleSteps) % kTroubleEvery) {
      replicas_[kStopped].kill(SIGCONT);
      replicas_[kKilled].kill(SIGKILL);
      replicas_[kKilled].wait();
    }
    if (trouble == kTroubleSteps && !replicas_[kKilled].running()) {
      DW_ASSIGN_OR_RETURN(replicas_[kKilled], follow(kKilled));
    }
    if (number % kMergeEvery == kMergeEvery - 1) {
      DW_RETURN_IF_ERROR(run({"compact", demo_.store, "--span", "16"}));
    }
    if (number % kCollectEvery == kCollectEvery - 1) {
      DW_RETURN_IF_ERROR(run({"compact", demo_.store, "--anchor"}));
      DW_RETURN_IF_ERROR(run({"gc", demo_.store, "--keep", "400", "--grace", "60s"}));
    }
    return {};
  }

 private:
  std::string checkpoint(unsigned number) const {
    return (demo_.work / "train" / fmt::format("v{}.safetensors", number)).string();
  }
  Status run(const std::vector<std::string>& args) const {
    return run_to_end(own_program(), args, demo_.work / "last.log").status();
  }
  Result<Process> follow(size_t number) const {
    const std::string name = fmt::format("rollout-{}", number);
    std::vector<std::string> args = {
        "follow", demo_.store, (demo_.work / name).string(), "--interval", "1", "--name", name};
    if (number == kStranger) {
      args.insert(args.end(), {"--trust", (demo_.work / "stranger.pub").string()});
    }
    return Process::start(own_program(), args, demo_.work / (name + ".log"));
  }

  const LiveDemo& demo_;
  std::vector<Process> replicas_;
};

}  // namespace

Status run_live(const Context& context, const LiveDemo& demo, std::shared_ptr<Store> store) {
  DW_ASSIGN_OR_RETURN(const auto server,
                      start_server(std::move(store), {.address = demo.address}, "", PageOptions{}));
  Fleet fleet(demo);
  DW_RETURN_IF_ERROR(fleet.start());
  context.say("");
  context.say("the page is at " + server->url() + "/ until Ctrl-C");
  flush_out();
  for (unsigned number = 0; !was_interrupted(); ++number) {
    const Status status = fleet.step(number);
    if (was_interrupted()) return {};
    DW_RETURN_IF_ERROR(Status(status));
    sleep_seconds(kPauseSeconds);
  }
  return {};
}

}  // namespace deltawire::cli
