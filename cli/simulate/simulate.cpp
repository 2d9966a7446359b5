#include <fmt/format.h>

#include "cli/simulate/files.h"
#include "cli/simulate/simulation.h"
#include "cli/units.h"
#include "cli/verbs.h"

namespace deltawire::cli {
namespace {

constexpr uint64_t kFewestParams = 1000;
constexpr uint64_t kMostParams = 1'000'000'000'000;
constexpr int64_t kMostSteps = 500;  // every version is an open file

struct Options {
  std::string params = "100M", out;
  int64_t steps = 1, shards = 1;  // signed: -1 is a mistake, not a large number
  uint64_t seed = 1;
  double density = 0.012;
  bool force = false;
};

Result<SimulationPlan> make_plan(const Context& context, const Options& options) {
  DW_ASSIGN_OR_RETURN(const uint64_t params, parse_count(options.params));
  if (params < kFewestParams || params > kMostParams) {
    return invalid_argument("--params " + options.params + ": must be from 1000 to 1000B");
  }
  if (!(options.density > 0 && options.density <= 0.5)) {
    return invalid_argument(
        fmt::format("--density {}: must be above 0 and at most 0.5", options.density));
  }
  if (options.steps < 0 || options.steps > kMostSteps) {
    return invalid_argument(
        fmt::format("--steps {}: must be from 0 to {}", options.steps, kMostSteps));
  }
  SimulationPlan plan;
  plan.model = simulated_model(params);
  if (options.shards < 1 || uint64_t(options.shards) > plan.model.size()) {
    return invalid_argument(fmt::format("--shards {}: must be from 1 to {}, the model's tensors",
                                        options.shards, plan.model.size()));
  }
  plan.step_size = calibrate_step_size(plan.model, options.density);
  plan.num_steps = uint64_t(options.steps);
  plan.num_shards = uint64_t(options.shards);
  plan.seed = options.seed;
  plan.overwrite = options.force;
  plan.threads = context.threads;
  return plan;
}

uint64_t num_params(const std::vector<SimulatedTensor>& model) {
  uint64_t count = 0;
  for (const SimulatedTensor& tensor : model) count += tensor.num_elements();
  return count;
}

void print(const Context& context, const SimulationPlan& plan, const SimulationReport& report,
           double took) {
  const uint64_t params = num_params(plan.model);
  nlohmann::ordered_json paths = nlohmann::ordered_json::array(), densities = paths;
  context.say(fmt::format("model     {} parameters in {} tensors, BF16, seed {}",
                          human_count(params), plan.model.size(), plan.seed));
  for (size_t version = 0; version < report.paths.size(); ++version) {
    paths.push_back(report.paths[version].string());
    std::string line = fmt::format("v{:<8} {}", version, report.paths[version].string());
    if (version != 0) {
      const uint64_t changed = report.num_changed[version - 1];
      densities.push_back(double(changed) / double(params));
      line += fmt::format(": {} changed ({})", human_count(changed),
                          percent(double(changed) / double(params)));
    }
    context.say(line);
  }
  context.say(fmt::format("written   {} in {}, {}/s", human_bytes(double(report.size_bytes)),
                          seconds(took), human_bytes(double(report.size_bytes) / took)));
  context.emit({{"params", params},
                {"steps", plan.num_steps},
                {"density", densities},
                {"changed", report.num_changed},
                {"bytes", report.size_bytes},
                {"paths", paths},
                {"tensors", plan.model.size()},
                {"shards", plan.num_shards},
                {"seed", plan.seed},
                {"step_size", plan.step_size},
                {"seconds", took}});
}

int simulate(const Context& context, const Options& options) {
  const double start = now_seconds();
  auto plan = make_plan(context, options);
  if (!plan.ok()) return context.fail(plan.status());
  auto report = [&] {
    ProgressBar bar(context, "simulate");
    plan->progress = bar.callback();
    return write_simulation(options.out, *plan);
  }();
  if (!report.ok()) return context.fail(report.status());
  print(context, *plan, *report, now_seconds() - start);
  return context.succeed();
}

}  // namespace

void add_simulate(CLI::App& app, Context& context, Run* run) {
  CLI::App* verb = make_verb(
      app, context, "simulate", "Write checkpoints that change the way RL training changes them",
      "  deltawire simulate -o run/                            100M parameters, v0 and v1\n"
      "  deltawire simulate --params 1.7B --steps 4 --density 0.012 --seed 7 -o run/\n"
      "  deltawire simulate --params 8B --shards 4 -o run/     folders v0/ and v1/ with an index");
  auto options = std::make_shared<Options>();
  verb->add_option("--params", options->params,
                   "parameters, about: 500M, 1.7B, ... (default 100M)");
  verb->add_option("--steps", options->steps,
                   "training steps after v0; each makes a checkpoint (default 1)");
  verb->add_option("--density", options->density,
                   "share of the elements that a step changes (default 0.012)");
  verb->add_option("--seed", options->seed,
                   "the same seed gives the same bits on every machine (default 1)");
  verb->add_option("--shards", options->shards, "files per checkpoint (default 1)");
  verb->add_option("-o,--output", options->out,
                   "the folder that gets v0.safetensors, v1.safetensors, ...")
      ->required();
  verb->add_flag("--force", options->force, "overwrite versions that are there already");
  add_threads(verb, context);
  verb->callback([&context, run, options] {
    *run = [&context, options] { return simulate(context, *options); };
  });
}

}  // namespace deltawire::cli
