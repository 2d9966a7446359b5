#include "lab/bench/versions_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "chain/names.h"
#include "chain/plan.h"
#include "cli/units.h"
#include "lab/bench/machine.h"
#include "lab/bench/versions/counting_store.h"
#include "lab/bench/versions/made_chain.h"
#include "lab/bench/versions/records.h"
#include "maintain/chain_state.h"
#include "store/directory_store.h"

namespace deltawire::cli {
namespace {

using Json = nlohmann::ordered_json;

// What is promised: however old the chain, however many tensors.
constexpr uint64_t kMostRequests = 64;
constexpr double kMostReadSeconds = 0.01;
constexpr int kRepeat = 5;

struct VersionsBenchArguments {
  std::vector<uint64_t> versions = {10, 1000, 100'000};
  uint64_t tensors = 50'000;
  std::string folder;  // to work in
};

struct VersionRow {
  uint64_t versions = 0;
  std::string what;
  uint64_t requests = 0;
  double memory_seconds = 0, folder_seconds = 0;
  uint64_t hops = 0, bytes = 0;  // of a plan
};

// One thing that a replica does, measured on one store.
struct Task {
  std::string what;
  std::function<Status(const std::shared_ptr<Store>&, VersionRow*)> run;
};

Task find_head(std::string what, uint64_t expected) {
  return {std::move(what), [expected](const std::shared_ptr<Store>& store, VersionRow*) -> Status {
            DW_ASSIGN_OR_RETURN(const Chain chain, Chain::open(store, {}));
            DW_ASSIGN_OR_RETURN(const std::optional<uint64_t> head, chain.head());
            return head == expected ? Status() : internal_error("another head was found");
          }};
}

Task plan_from(std::string what, std::optional<Held> held, uint64_t target) {
  return {std::move(what), [=](const std::shared_ptr<Store>& store, VersionRow* row) -> Status {
            DW_ASSIGN_OR_RETURN(const Chain chain, Chain::open(store, {}));
            DW_ASSIGN_OR_RETURN(const Plan plan, plan_catch_up(chain, held, target));
            row->hops = plan.hops.size();
            row->bytes = plan.bytes;
            return {};
          }};
}

std::vector<Task> tasks_of(const MadeChain& made) {
  const uint64_t head = made.manifests.size() - 1;
  std::vector<Task> tasks = {find_head("find the head", head)};
  const auto held = [&](uint64_t version) { return Held{version, made.manifests[version]}; };
  if (head >= 1) tasks.push_back(plan_from("plan, one behind", held(head - 1), head));
  if (head >= 100) tasks.push_back(plan_from("plan, 100 behind", held(head - 100), head));
  if (head >= 2) tasks.push_back(plan_from("plan, from version 0", held(0), head));
  tasks.push_back(plan_from("plan, from nothing", {}, head));
  return tasks;
}

Result<double> measure(const Task& task, const std::shared_ptr<Store>& store, VersionRow* row) {
  double best = 1e9;
  for (int i = 0; i < kRepeat; ++i) {
    const auto counting = std::make_shared<CountingStore>(store);
    const double begin = now_seconds();
    DW_RETURN_IF_ERROR(task.run(counting, row).at(task.what));
    best = std::min(best, now_seconds() - begin);
    row->requests = std::max(row->requests, counting->requests.load());
  }
  return best;
}

Result<VersionRow> measure_both(const Task& task, uint64_t versions,
                                const std::shared_ptr<Store>& memory,
                                const std::shared_ptr<Store>& folder) {
  VersionRow row;
  row.versions = versions;
  row.what = task.what;
  DW_ASSIGN_OR_RETURN(row.memory_seconds, measure(task, memory, &row));
  DW_ASSIGN_OR_RETURN(row.folder_seconds, measure(task, folder, &row));
  return row;
}

Status measure_chain(const Context& context, uint64_t versions,
                     const VersionsBenchArguments& options, std::vector<VersionRow>* rows) {
  ProgressBar bar(context, fmt::format("{} versions", human_count(versions)));
  DW_ASSIGN_OR_RETURN(const MadeChain made, make_chain(versions, bar.callback()));
  DW_ASSIGN_OR_RETURN(const WorkFolder work, WorkFolder::make(options.folder));
  DW_RETURN_IF_ERROR(write_objects(made.memory.get(), work.path()));
  const auto folder = std::make_shared<DirectoryStore>(work.path());
  for (const Task& task : tasks_of(made)) {
    DW_RETURN_IF_ERROR(check_interrupted());
    DW_ASSIGN_OR_RETURN(VersionRow row, measure_both(task, versions, made.memory, folder));
    rows->push_back(std::move(row));
  }
  // The hint is only that: without it the head is found by looking.
  DW_RETURN_IF_ERROR(made.memory->remove(kHeadName));
  DW_RETURN_IF_ERROR(folder->remove(kHeadName));
  DW_ASSIGN_OR_RETURN(VersionRow row,
                      measure_both(find_head("find the head, no hint", versions - 1), versions,
                                   made.memory, folder));
  rows->push_back(std::move(row));
  return {};
}

std::string milliseconds(double value) { return fmt::format("{:.2f} ms", value * 1e3); }

void say_rows(const Context& context, const std::vector<VersionRow>& rows) {
  context.say(fmt::format("{:>8}  {:<24} {:>8} {:>12} {:>12}  {}", "versions", "", "requests",
                          "in memory", "in a folder", "what is planned"));
  for (const VersionRow& row : rows) {
    const std::string plan = row.hops == 0 ? ""
                                           : fmt::format("{}, {}", plural(row.hops, "hop"),
                                                         human_bytes(double(row.bytes)));
    const std::string line = fmt::format(
        "{:>8}  {:<24} {:>8} {:>12} {:>12}  {}", human_count(row.versions), row.what, row.requests,
        milliseconds(row.memory_seconds), milliseconds(row.folder_seconds), plan);
    context.say(line.substr(0, line.find_last_not_of(' ') + 1));
  }
}

void say_records(const Context& context, const RecordCosts& costs) {
  context.say(fmt::format("records   of {}", plural(costs.tensors, "tensor")));
  context.say(fmt::format("manifest  {}, {:.1f} bytes per tensor; read in {}, written in {}",
                          human_bytes(double(costs.manifest_bytes)),
                          double(costs.manifest_bytes) / double(costs.tensors),
                          milliseconds(costs.read_manifest), milliseconds(costs.write_manifest)));
  context.say(fmt::format(
      "schema    {}, {:.1f} bytes per tensor; read in {}; shared by all versions that have it",
      human_bytes(double(costs.schema_bytes)), double(costs.schema_bytes) / double(costs.tensors),
      milliseconds(costs.read_schema)));
}

Json to_json(const std::vector<VersionRow>& rows, const RecordCosts& costs,
             uint64_t most_requests) {
  Json list = Json::array();
  for (const VersionRow& row : rows) {
    list.push_back({{"versions", row.versions},
                    {"what", row.what},
                    {"requests", row.requests},
                    {"memory_seconds", row.memory_seconds},
                    {"folder_seconds", row.folder_seconds},
                    {"hops", row.hops},
                    {"planned_bytes", row.bytes}});
  }
  const Machine machine = this_machine();
  return {{"machine",
           {{"cpu", machine.cpu},
            {"arch", machine.arch},
            {"cores", machine.cores},
            {"kernels", machine.kernels},
            {"compiler", machine.compiler}}},
          {"rows", list},
          {"records",
           {{"tensors", costs.tensors},
            {"manifest_bytes", costs.manifest_bytes},
            {"schema_bytes", costs.schema_bytes},
            {"read_manifest_seconds", costs.read_manifest},
            {"write_manifest_seconds", costs.write_manifest},
            {"read_schema_seconds", costs.read_schema}}},
          {"goals",
           {{"most_requests", most_requests},
            {"requests_met", most_requests <= kMostRequests},
            {"read_met", costs.read_manifest <= kMostReadSeconds}}}};
}

int versions_bench(const Context& context, const VersionsBenchArguments& options) {
  std::vector<VersionRow> rows;
  for (const uint64_t versions : options.versions) {
    if (versions == 0) return context.fail(invalid_argument("a chain has one version or more"));
    const Status status = measure_chain(context, versions, options, &rows);
    if (!status.ok()) return context.fail(status);
  }
  const Result<RecordCosts> costs = measure_records(options.tensors);
  if (!costs.ok()) return context.fail(costs.status());
  uint64_t most = 0;
  for (const VersionRow& row : rows) most = std::max(most, row.requests);
  const auto verdict = [](bool met) { return met ? "met" : "MISSED"; };
  say_rows(context, rows);
  context.say("");
  say_records(context, *costs);
  context.say("");
  context.say(fmt::format(
      "goals     at most {} requests for each: {}; a manifest read in 10 ms: {}", kMostRequests,
      verdict(most <= kMostRequests), verdict(costs->read_manifest <= kMostReadSeconds)));
  context.emit(to_json(rows, *costs, most));
  return context.succeed();
}

}  // namespace

void add_versions_bench(Command* bench, Context& context, Call* call) {
  Command* verb =
      bench->add_verb("versions", "Measure what the age of a chain and the number of tensors cost");
  verb->set_footer(
      "Examples:\n"
      "  deltawire bench versions                     10, 1,000 and 100,000 versions; 50,000 "
      "tensors\n"
      "  deltawire bench versions --versions 10 1000 --tensors 1000");
  auto options = std::make_shared<VersionsBenchArguments>();
  verb->add_option("--versions", options->versions,
                   "lengths of chains (default 10 1000 100000), at most 1000000")
      ->between(1, 1'000'000)
      ->type_name("N");
  verb->add_option("--tensors", options->tensors, "of the model whose records are measured (50000)")
      ->between(1, 1'000'000)
      ->type_name("N");
  verb->add_option("--folder", options->folder, "where to work (default: the temporary folder)");
  verb->add_flag("--json", context.json, "print one JSON object on stdout and nothing else there");
  verb->add_flag("-q,--quiet", context.quiet, "print no report and no progress");
  verb->final_callback([&context, call, options] {
    *call = [&context, options] { return versions_bench(context, *options); };
  });
}

}  // namespace deltawire::cli
