#include <fmt/format.h>

#include "cli/chain_args.h"
#include "cli/options.h"
#include "cli/table.h"
#include "cli/units.h"
#include "cli/verbs.h"
#include "tensor/text.h"

namespace deltawire::cli {
namespace {

using Json = nlohmann::ordered_json;

struct PlanArguments {
  ChainArgs chain;
  std::optional<uint64_t> from, to;
};

void say(const Context& context, const PlanArguments& options, const Plan& plan) {
  const uint64_t to = plan.target.manifest.version;
  const std::string from = options.from ? fmt::format("version {}", *options.from) : "nothing";
  if (plan.hops.empty()) {
    context.say(fmt::format("from {} to version {}: nothing to do", from, to));
    return;
  }
  Table table({{"hop", false}, {"from"}, {"to"}, {"parts"}, {"bytes"}});
  for (const Hop& hop : plan.hops) {
    table.add({std::string(hop_kind_name(hop.kind)), hop.base ? std::to_string(*hop.base) : "-",
               std::to_string(hop.version), human_count(hop.parts.size()),
               human_bytes(double(hop.bytes))});
  }
  table.say(context);
  context.say(fmt::format("from {} to version {}: {}, {}; every single version would be {}", from,
                          to, plural(plan.hops.size(), "hop"), human_bytes(double(plan.bytes)),
                          human_bytes(double(plan.all_deltas_bytes))));
  for (const std::string& note : plan.notes) context.say("went around: " + escape_controls(note));
}

Json to_json(const PlanArguments& options, const Plan& plan) {
  Json hops = Json::array();
  for (const Hop& hop : plan.hops) {
    hops.push_back({{"kind", hop_kind_name(hop.kind)},
                    {"from", hop.base ? Json(*hop.base) : Json()},
                    {"to", hop.version},
                    {"bytes", hop.bytes},
                    {"parts", parts_json(hop.parts)}});
  }
  return {{"from", options.from ? Json(*options.from) : Json()},
          {"to", plan.target.manifest.version},
          {"bytes", plan.bytes},
          {"all_deltas_bytes", plan.all_deltas_bytes},
          {"anchor_bytes", plan.anchor_bytes},
          {"hops", std::move(hops)},
          {"notes", plan.notes}};
}

int run_plan(const Context& context, const PlanArguments& options) {
  const Result<Chain> chain = open_chain(options.chain);
  if (!chain.ok()) return context.fail(chain.status());
  const Result<Plan> plan = chain->plan(options.from, options.to);
  if (!plan.ok()) return context.fail(plan.status());
  say(context, options, *plan);
  context.emit(to_json(options, *plan));
  return context.succeed();
}

}  // namespace

void add_plan(Command& app, Context& context, Call* call) {
  Command* verb =
      make_verb(app, context, "plan", "Show what a replica would fetch to reach a version",
                "  deltawire plan s3://bucket/run                    a new replica, to the head\n"
                "  deltawire plan s3://bucket/run --from 12          one that holds version 12\n"
                "  deltawire plan store --from 12 --to 40 --json");
  auto options = std::make_shared<PlanArguments>();
  add_chain_args(verb, &options->chain);
  add_version(verb, "--from", &options->from, "the version that the replica holds (default: none)");
  add_version(verb, "--to", &options->to, "the version to reach (default: the head)");
  verb->callback([&context, call, options] {
    *call = [&context, options] { return run_plan(context, *options); };
  });
}

}  // namespace deltawire::cli
