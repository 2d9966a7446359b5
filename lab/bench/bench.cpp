#include <fmt/format.h>

#include <algorithm>

#include "cli/options.h"
#include "lab/bench/cases.h"
#include "lab/verbs.h"

namespace deltawire::cli {

namespace {

struct BenchCase {
  std::string name, what;
  Status (*run)(const Context&, const BenchOptions&);
};

const BenchCase kCases[] = {
    {"codecs", "sizes and speeds, also of peers' formats", bench_codecs},
    {"chain", "publish to replica, also over a slow link", bench_chain},
};

constexpr char kExamples[] =
    "  deltawire bench                          1 GB of simulated weights\n"
    "  deltawire bench codecs --quick           40 MB: a first impression\n"
    "  deltawire bench codecs OLD NEW           checkpoints of your own\n"
    "  deltawire bench codecs --codec tight slime deltawire -j 8\n"
    "  deltawire bench chain --rate 12.5 --delay 120";

// An option, and the cases that take it.
struct CaseOption {
  Option* option;
  std::vector<std::string> cases;
};

Status check_options(const std::string& name, const std::vector<CaseOption>& options) {
  for (const CaseOption& one : options) {
    const bool taken = std::find(one.cases.begin(), one.cases.end(), name) != one.cases.end();
    if (taken || !one.option->given()) continue;
    const auto& names = one.option->long_names();
    return invalid_argument(fmt::format("bench {} does not take {}; see deltawire bench --help",
                                        name, names.empty() ? "checkpoints" : "--" + names[0]));
  }
  return {};
}

std::vector<CaseOption> add_options(Command* verb, BenchOptions* to) {
  auto* old_path =
      verb->add_option("OLD", to->old_path, "checkpoint, in place of simulated weights");
  auto* new_path = verb->add_option("NEW", to->new_path, "the next checkpoint of the same run");
  old_path->needs(new_path);
  auto* params =
      verb->add_option("--params", to->params, "simulated parameters (default 500M: 1 GB)");
  params->type_name("N");
  auto* quick = verb->add_flag(
      "--quick", [to] { to->params = "20M"; }, "the same as --params 20M");
  auto* density = add_share(verb, "--density", &to->density,
                            "share that a step changes (default 0.012)", 0, 0.5);
  auto* seed =
      add_whole_number(verb, "--seed", &to->seed, "of the simulation (default 1)", 0, UINT64_MAX);
  for (Option* option : {params, quick, density, seed}) option->excludes(old_path);
  quick->excludes(params);
  auto* repeat = add_whole_number(verb, "--repeat", &to->repeat,
                                  "rounds, of which the best counts (default 3)", 1, 1000);
  auto* folder = verb->add_option("--folder", to->folder, "work folder (default: TMPDIR)");
  auto* codecs = verb->add_option("--codec", to->codecs, "only these rows");
  codecs->type_name("NAME");
  auto* sizes = verb->add_flag("--sizes", to->sizes, "bytes only: no timing");
  auto* rate = verb->add_option("--rate", to->rate_megabytes, "of the link, MB/s (default 100)");
  rate->positive();
  auto* delay = verb->add_option("--delay", to->round_trip_milliseconds,
                                 "of the link, round trip in ms (default 50)");
  delay->not_negative();
  auto* store = verb->add_option("--store", to->store, "one more place, such as s3://bucket/bench");
  auto* endpoint =
      verb->add_option("--store-endpoint", to->endpoint, "of --store: https://HOST:PORT");
  endpoint->needs(store);

  const std::vector<std::pair<std::vector<Option*>, std::vector<std::string>>> taken = {
      {{params, quick, density, seed, repeat}, {"codecs", "chain"}},
      {{old_path, codecs, sizes}, {"codecs"}},
      {{folder, rate, delay, store, endpoint}, {"chain"}}};
  std::vector<CaseOption> all;
  for (const auto& [options, cases] : taken) {
    for (Option* option : options) {
      all.push_back({option, cases});
      if (!option->long_names().empty())
        option->group(fmt::format("Options of {}", fmt::join(cases, ", ")));
    }
  }
  return all;
}

}  // namespace

void add_bench(Command& app, Context& context, Call* call) {
  Command* verb =
      make_verb(app, context, "bench", "Measure codecs and chains on this machine", kExamples);
  auto options = std::make_shared<BenchOptions>();
  auto name = std::make_shared<std::string>(kCases[0].name);
  std::vector<std::string> names;
  std::string described = "what to measure (default codecs)";
  for (const BenchCase& one : kCases) {
    names.push_back(one.name);
    described += fmt::format("\n{}: {}", one.name, one.what);
  }
  add_choice(verb, "CASE", name.get(), described, names);
  auto taken = std::make_shared<std::vector<CaseOption>>(add_options(verb, options.get()));
  add_threads(verb, context);
  verb->callback([&context, call, options, name, taken] {
    *call = [&context, options, name, taken] {
      Status status = check_options(*name, *taken);
      for (const BenchCase& one : kCases) {
        if (status.ok() && one.name == *name) status = one.run(context, *options);
      }
      return status.ok() ? context.succeed() : context.fail(status);
    };
  });
}

}  // namespace deltawire::cli
