#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "base/file.h"
#include "cli/options.h"
#include "cli/table.h"
#include "cli/units.h"
#include "cli/verbs.h"
#include "shard/shard.h"
#include "tensor/text.h"

namespace deltawire::cli {
namespace {

using Json = nlohmann::ordered_json;

// Of a layout in a file: larger ones are no layouts.
constexpr uint64_t kMaxLayoutBytes = uint64_t{1} << 30;
// What a changed element takes on the wire: `tight` at the densities of RL steps (README), and
// verl's position in 32 bits with a value of BF16.
constexpr double kTightBytes = 0.85, kVerlBytes = 6;
// More edges than this are no longer for people; --json has all of them.
constexpr size_t kMostEdges = 64;

struct PlanShardsArguments {
  std::string trainer, engine;
  std::string model;
  double density = 0;  // 0: none given
};

bool is_file(const std::string& words) {
  std::error_code ignored;
  return std::filesystem::exists(words, ignored);
}

Result<ShardLayout> layout_in_file(const std::string& path) {
  DW_ASSIGN_OR_RETURN(const auto file, MappedFile::open(path));
  if (file->bytes().size() > kMaxLayoutBytes) return invalid_argument("too large for a layout");
  const std::string text(file->bytes().begin(), file->bytes().end());
  DW_RETURN_IF_ERROR(file->check_whole());
  return ShardLayout::parse(text);
}

// A file, or words such as tp=4.
Result<ShardLayout> read_layout(const std::string& words, const std::string& model) {
  if (is_file(words)) {
    Result<ShardLayout> layout = layout_in_file(words);
    if (!layout.ok()) return std::move(layout).status().at(shown_path(words));
    return layout;
  }
  if (words.find('=') == std::string::npos) {
    return not_found(shown_path(words) + ": no such layout file, and no words such as tp=4");
  }
  if (model.empty()) {
    return invalid_argument("layout " + quote(words) +
                            ": which tensors there are is not known: say --model CKPT");
  }
  DW_ASSIGN_OR_RETURN(const Checkpoint checkpoint, Checkpoint::open(model));
  return ShardLayout::of_spec(words, checkpoint);
}

uint64_t num_elements_on(const ShardPlan& plan) {
  uint64_t elements = 0;
  for (const ShardEdge& edge : plan.edges) {
    for (const ShardMove& move : edge.moves) {
      const Shape shape = box_shape(move.box, plan.tensors[move.tensor].shape);
      elements += num_elements(shape).value();  // of a box that the plan has checked
    }
  }
  return elements;
}

struct Estimate {
  double changed = 0, tight_bytes = 0, verl_bytes = 0;
};
Estimate estimate(const ShardPlan& plan, double density) {
  const double changed = density * double(num_elements_on(plan));
  return {changed, changed * kTightBytes, changed * kVerlBytes};
}

uint64_t broadcast_bytes(const ShardPlan& plan) { return plan.model_bytes * plan.num_engines; }

void say_ranks(const Context& context, const char* title, const char* bytes_title,
               const std::vector<uint64_t>& bytes) {
  Table table({{title}, {bytes_title}});
  for (size_t rank = 0; rank < bytes.size(); ++rank) {
    table.add({std::to_string(rank), human_bytes(double(bytes[rank]))});
  }
  table.say(context);
}

void say(const Context& context, const PlanShardsArguments& options, const ShardPlan& plan) {
  Table edges({{"trainer"}, {"engine"}, {"boxes"}, {"bytes"}});
  for (size_t i = 0; i < std::min(plan.edges.size(), kMostEdges); ++i) {
    const ShardEdge& edge = plan.edges[i];
    edges.add({std::to_string(edge.trainer), std::to_string(edge.engine),
               human_count(edge.moves.size()), human_bytes(double(edge.bytes))});
  }
  edges.say(context);
  if (plan.edges.size() > kMostEdges) {
    context.say(fmt::format("and {} more: --json has all", plan.edges.size() - kMostEdges));
  }
  say_ranks(context, "trainer", "sends", plan.trainer_bytes);
  say_ranks(context, "engine", "gets", plan.engine_bytes);
  const double all = double(plan.bytes()), broadcast = double(broadcast_bytes(plan));
  context.say(fmt::format(
      "{} to {}: {}, {} of weights; a broadcast of the model would be {} ({:.2f} times)",
      plural(plan.num_trainers, "trainer rank"), plural(plan.num_engines, "engine rank"),
      plural(plan.edges.size(), "edge"), human_bytes(all), human_bytes(broadcast),
      all > 0 ? broadcast / all : 0));
  if (options.density > 0) {
    const Estimate delta = estimate(plan, options.density);
    context.say(fmt::format("a version that changes {} of it: about {}; with 32-bit positions {}",
                            percent(options.density), human_bytes(delta.tight_bytes),
                            human_bytes(delta.verl_bytes)));
  }
  context.say("plan " + plan.digest.hex());
}

Json to_json(const PlanShardsArguments& options, const ShardPlan& plan) {
  Json edges = Json::array(), refusals = Json::array();
  for (const ShardEdge& edge : plan.edges) {
    edges.push_back({{"trainer", edge.trainer},
                     {"engine", edge.engine},
                     {"boxes", edge.moves.size()},
                     {"bytes", edge.bytes}});
  }
  for (const ShardRefusal& refusal : plan.refusals) {
    refusals.push_back({{"obstacle", shard_obstacle_name(refusal.obstacle)},
                        {"tensor", refusal.tensor},
                        {"reason", refusal.words}});
  }
  Json out = {{"plan", plan.digest.hex()},
              {"trainer_ranks", plan.num_trainers},
              {"engine_ranks", plan.num_engines},
              {"bytes", plan.bytes()},
              {"broadcast_bytes", broadcast_bytes(plan)},
              {"model_bytes", plan.model_bytes},
              {"trainer_bytes", plan.trainer_bytes},
              {"engine_bytes", plan.engine_bytes},
              {"edges", std::move(edges)},
              {"refusals", std::move(refusals)}};
  if (options.density > 0) {
    const Estimate delta = estimate(plan, options.density);
    out["density"] = options.density;
    out["delta_bytes"] = uint64_t(delta.tight_bytes);
    out["int32_positions_bytes"] = uint64_t(delta.verl_bytes);
  }
  return out;
}

int run_plan_shards(const Context& context, const PlanShardsArguments& options) {
  const Result<ShardLayout> trainer = read_layout(options.trainer, options.model);
  if (!trainer.ok()) return context.fail(trainer.status());
  const Result<ShardLayout> engine = read_layout(options.engine, options.model);
  if (!engine.ok()) return context.fail(engine.status());
  const Result<ShardPlan> plan = plan_shards(*trainer, *engine);
  if (!plan.ok()) return context.fail(plan.status());
  if (const Status usable = plan->check(); !usable.ok()) {
    return context.fail(unsupported(usable.message() + "; versions would be broadcast instead"));
  }
  say(context, options, *plan);
  context.emit(to_json(options, *plan));
  return context.succeed();
}

}  // namespace

void add_plan_shards(Command& app, Context& context, Call* call) {
  Command* verb = make_verb(
      app, context, "plan-shards", "Show which trainer rank would send what to which engine rank",
      "  deltawire plan-shards fsdp=4 tp=2 --model checkpoint\n"
      "  deltawire plan-shards tp=2,ep=4 tp=8 --model checkpoint --density 0.012\n"
      "  deltawire plan-shards trainer.json engine.json --json\n\n"
      "A layout is a JSON file (docs/carriers.md) or words: tp, ep, pp, fsdp, replicated (or dp).");
  auto options = std::make_shared<PlanShardsArguments>();
  verb->add_option("TRAINER", options->trainer, "layout of the trainer: a file, or words")
      ->required();
  verb->add_option("ENGINE", options->engine, "layout of the engine")->required();
  verb->add_option("--model", options->model, "the checkpoint whose tensors words are about")
      ->type_name("CKPT");
  add_share(verb, "--density", &options->density,
            "estimate a version that changes this share of the elements, such as 0.012", 0, 1);
  verb->callback([&context, call, options] {
    *call = [&context, options] { return run_plan_shards(context, *options); };
  });
}

}  // namespace deltawire::cli
