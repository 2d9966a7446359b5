#include <fmt/format.h>

#include "cli/options.h"
#include "cli/table.h"
#include "lab/simulate/simulation.h"
#include "lab/verbs.h"
#include "tensor/text.h"

namespace deltawire::cli {
namespace {

constexpr uint64_t kMostSteps = 500;  // every version is an open file
constexpr uint64_t kMostShards = 100'000;

struct SimulateArguments {
  std::string params = "100M", out;
  uint64_t steps = 1, shards = 1, seed = 1;
  double density = 0.012;
  bool masters = false, force = false;
};

Result<SimulationPlan> make_plan(const Context& context, const SimulateArguments& options) {
  SimulationPlan plan;
  DW_ASSIGN_OR_RETURN(plan.model, simulated_model(options.params));
  if (options.shards > plan.model.size()) {
    return invalid_argument(
        fmt::format("--shards: expected at most {}, the model's tensors, got {}", plan.model.size(),
                    options.shards));
  }
  for (SimulatedTensor& tensor : plan.model) tensor.master = options.masters;
  plan.step_size = calibrate_step_size(plan.model, options.density);
  plan.num_steps = options.steps;
  plan.num_shards = options.shards;
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
  context.say(fmt::format("model     {} parameters in {} tensors, {}, seed {}", human_count(params),
                          plan.model.size(), dtype_name(plan.model.front().dtype()), plan.seed));
  for (size_t version = 0; version < report.paths.size(); ++version) {
    paths.push_back(report.paths[version].string());
    std::string line =
        fmt::format("v{:<8} {}", version, shown_path(report.paths[version].string()));
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
                {"dtype", dtype_name(plan.model.front().dtype())},
                {"step_size", plan.step_size},
                {"seconds", took}});
}

int simulate(const Context& context, const SimulateArguments& options) {
  const double start = steady_seconds();
  auto plan = make_plan(context, options);
  if (!plan.ok()) return context.fail(plan.status());
  auto report = [&] {
    ProgressBar bar(context, "simulate");
    plan->progress = bar.callback();
    return write_simulation(options.out, *plan);
  }();
  if (!report.ok()) return context.fail(report.status());
  print(context, *plan, *report, steady_seconds() - start);
  return context.succeed();
}

}  // namespace

void add_simulate(Command& app, Context& context, Call* call) {
  Command* verb = make_verb(
      app, context, "simulate", "Write checkpoints that change the way RL training changes them",
      "  deltawire simulate -o run/                          100M parameters, v0 and v1\n"
      "  deltawire simulate --params 1.7B --steps 4 --density 0.012 --seed 7 -o run/\n"
      "  deltawire simulate --params 8B --shards 4 -o run/   folders with an index");
  auto options = std::make_shared<SimulateArguments>();
  verb->add_option("--params", options->params,
                   "parameters, about: 500M, 1.7B, ..., 1000 to 1000B (default 100M)")
      ->type_name("N");
  add_whole_number(verb, "--steps", &options->steps,
                   "training steps after v0, 0 to 500; each makes a checkpoint (default 1)", 0,
                   kMostSteps);
  add_share(verb, "--density", &options->density,
            "share of the elements that a step changes, above 0, at most 0.5 (default 0.012)", 0,
            0.5);
  add_whole_number(verb, "--seed", &options->seed,
                   "0 to 2^64 - 1; the same seed gives the same bits on every machine (default 1)",
                   0, UINT64_MAX);
  add_whole_number(verb, "--shards", &options->shards,
                   "files per checkpoint, at most one per tensor (default 1)", 1, kMostShards);
  verb->add_option("-o,--output", options->out,
                   "the folder that gets v0.safetensors, v1.safetensors, ...; made if missing. "
                   "Versions that are there already are an error")
      ->required();
  verb->add_flag(
      "--masters", options->masters,
      "write the trainer's own weights, F32, which all change at every step; changes are "
      "counted as rounded to BF16");
  verb->add_flag("--force", options->force, "replace versions that are there already");
  add_threads(verb, context);
  verb->callback([&context, call, options] {
    *call = [&context, options] { return simulate(context, *options); };
  });
}

}  // namespace deltawire::cli
