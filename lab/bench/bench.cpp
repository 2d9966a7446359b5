#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "cli/options.h"
#include "cli/units.h"
#include "deltawire/delta.h"
#include "lab/bench/bandwidth.h"
#include "lab/bench/bound.h"
#include "lab/bench/carrier_bench.h"
#include "lab/bench/chain_bench.h"
#include "lab/bench/data.h"
#include "lab/bench/device_bench.h"
#include "lab/bench/dialects_bench.h"
#include "lab/bench/measure.h"
#include "lab/bench/models.h"
#include "lab/bench/pipeline.h"
#include "lab/bench/report.h"
#include "lab/bench/shards_bench.h"
#include "lab/bench/versions_bench.h"
#include "lab/verbs.h"
#include "tensor/text.h"

namespace deltawire::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kQuickParams = "20M";
constexpr uint64_t kFewestParams = 1000;
constexpr uint64_t kMostParams = 1'000'000'000'000;
constexpr double kMinSeconds = 0.25;  // per row, encode and apply together

struct BenchArguments {
  std::string old_path, new_path, params = "500M";
  double density = 0.012;
  uint64_t seed = 1;
  unsigned repeat = 3;
  std::vector<std::string> only;  // names of codecs and pipelines; empty: all
  bool quick = false, sizes = false;
  std::string device = "cpu";
  DeviceBenchOptions on_device;
};

bool wanted(const BenchArguments& options, const std::string& name) {
  return options.only.empty() ||
         std::find(options.only.begin(), options.only.end(), name) != options.only.end();
}

std::vector<std::string> names_of_rows() {
  std::vector<std::string> names;
  for (const auto& one : codec_pipelines()) names.push_back(one->name());
  for (const auto& one : peer_pipelines()) names.push_back(one->name());
  names.push_back(digested_tight_pipeline()->name());
  return names;
}

Status check_names(const BenchArguments& options) {
  const std::vector<std::string> known = names_of_rows();
  for (const std::string& name : options.only) {
    if (std::find(known.begin(), known.end(), name) == known.end()) {
      return invalid_argument(
          fmt::format("--codec: expected some of {}, got {}", fmt::join(known, ", "), quote(name)));
    }
  }
  return {};
}

Result<BenchData> make_data(const Context& context, const BenchArguments& options,
                            ThreadPool* pool) {
  ProgressBar bar(context, options.old_path.empty() ? "simulate" : "load");
  if (!options.old_path.empty()) {
    return load_bench_data(options.old_path, options.new_path, pool, bar.callback());
  }
  const auto parsed = parse_count(options.params);
  const uint64_t params = parsed.ok() ? *parsed : 0;
  if (params < kFewestParams || params > kMostParams) {
    return invalid_argument("--params: expected a count from 1000 to 1000B, such as 500M, got " +
                            quote(options.params));
  }
  return simulate_bench_data(params, options.density, options.seed, pool, bar.callback());
}

// The size of a delta as `deltawire diff` writes it.
Result<uint64_t> delta_file_bytes(const Context& context, const BenchArguments& options) {
  std::string folder = (fs::temp_directory_path() / "deltawire-bench-XXXXXX").string();
  if (mkdtemp(folder.data()) == nullptr) return io_error(folder + ": cannot create");
  ProgressBar bar(context, "diff");
  DiffOptions diff;
  diff.threads = context.threads;
  diff.progress = bar.callback();
  Result<DiffReport> report = diff_checkpoints(options.old_path, options.new_path,
                                               fs::path(folder) / "delta.safetensors", diff);
  std::error_code ignored;
  fs::remove_all(folder, ignored);
  if (!report.ok()) return std::move(report).status();
  return report->delta_bytes;
}

class Bench {
 public:
  Bench(const Context& context, const BenchArguments& options, ThreadPool* all_threads)
      : context_(context),
        options_(options),
        effort_{options.sizes ? 1 : options.repeat, options.sizes ? 0 : kMinSeconds},
        all_threads_(all_threads) {
    if (!options.sizes && all_threads->num_workers() > 1) pools_.push_back(nullptr);
    pools_.push_back(all_threads);
  }

  Result<BenchReport> run(const BenchData& data) {
    BenchReport report;
    report.data = &data;
    report.threads = all_threads_->num_workers();
    report.repeat = effort_.repeat;
    report.bound = bound_of(data.tensors, all_threads_);
    if (!options_.old_path.empty()) {
      DW_ASSIGN_OR_RETURN(report.file_bytes, delta_file_bytes(context_, options_));
    }
    if (!options_.sizes) DW_RETURN_IF_ERROR(add_bandwidths(data, &report));
    DW_RETURN_IF_ERROR(add_rows(data, codecs_, &report.codecs));
    DW_RETURN_IF_ERROR(add_rows(data, peers_, &report.pipelines));
    return report;
  }

  Status prepare() {
    peers_.push_back(digested_tight_pipeline());
    return check_names(options_);
  }

 private:
  Status add_bandwidths(const BenchData& data, BenchReport* report) {
    for (ThreadPool* pool : pools_) {
      ProgressBar bar(context_, fmt::format("read, {} thr", num_workers(pool)));
      DW_ASSIGN_OR_RETURN(const Bandwidth bandwidth,
                          measure_bandwidth(data, pool, effort_, bar.callback()));
      report->bandwidths.push_back(bandwidth);
    }
    return {};
  }

  Status add_rows(const BenchData& data, const Pipelines& pipelines, std::vector<BenchRow>* rows) {
    for (const auto& pipeline : pipelines) {
      if (!wanted(options_, pipeline->name())) continue;
      BenchRow row{pipeline->name(), 0, {}, {}};
      for (ThreadPool* pool : pools_) {
        ProgressBar bar(context_, fmt::format("{}, {} thr", row.name, num_workers(pool)));
        Result<Speed> speed = measure(*pipeline, data, pool, effort_, bar.callback());
        if (!speed.ok()) {
          if (speed.status().code() != Code::kUnsupported) return std::move(speed).status();
          row.unsupported = speed.status().message();
          break;
        }
        row.payload_bytes = speed->payload_bytes;
        if (!options_.sizes) row.speeds.push_back(*speed);
      }
      rows->push_back(std::move(row));
    }
    return {};
  }

  const Context& context_;
  const BenchArguments& options_;
  const Effort effort_;
  ThreadPool* const all_threads_;
  std::vector<ThreadPool*> pools_;  // null: one thread
  const Pipelines codecs_ = codec_pipelines();
  Pipelines peers_ = peer_pipelines();
};

int bench(const Context& context, const BenchArguments& options) {
  ThreadPool pool(context.threads);
  Bench bench(context, options, &pool);
  if (Status status = bench.prepare(); !status.ok()) return context.fail(status);
  const Result<BenchData> data = make_data(context, options, &pool);
  if (!data.ok()) return context.fail(data.status());
  const Result<BenchReport> report = bench.run(*data);
  if (!report.ok()) return context.fail(report.status());
  if (context.json) context.emit(to_json(*report));
  say_report(*report, context);
  return context.succeed();
}

}  // namespace

void add_bench(Command& app, Context& context, Call* call) {
  Command* verb =
      make_verb(app, context, "bench", "Measure every codec, and what peers do, on this machine",
                "  deltawire bench                                     1 GB, simulated\n"
                "  deltawire bench --quick                             40 MB: a quick look\n"
                "  deltawire bench step1.safetensors step2.safetensors your own weights\n"
                "  deltawire bench --codec tight slime deltawire -j 8  three rows only\n"
                "  deltawire bench --params 2B --density 0.005 --json\n"
                "  deltawire bench --device cuda --model 1.7b          the GPU path\n"
                "  deltawire bench --device cuda OLD NEW --copies 100  the same, your weights");
  auto options = std::make_shared<BenchArguments>();
  auto* old_path = verb->add_option("OLD", options->old_path,
                                    "the checkpoint before; without it, weights are simulated");
  auto* new_path = verb->add_option("NEW", options->new_path, "the checkpoint after");
  old_path->needs(new_path);
  auto* params = verb->add_option("--params", options->params,
                                  "parameters of the simulated model (default 500M: 1 GB of bf16)");
  params->type_name("N");
  auto* density =
      add_share(verb, "--density", &options->density,
                "share of them that a step changes, above 0, at most 0.5 (default 0.012)", 0, 0.5);
  auto* seed = add_whole_number(verb, "--seed", &options->seed,
                                "of the simulation, 0 to 2^64 - 1 (default 1)", 0, UINT64_MAX);
  auto* quick =
      verb->add_flag("--quick", options->quick, "a model of 20M parameters: a look, not a result");
  for (Option* option : {params, density, seed, quick}) option->excludes(old_path);
  quick->excludes(params);
  auto* only =
      verb->add_option("--codec", options->only,
                       "only these: auto, a codec, or one of trl-v1, slime-gen1, slime, deltawire");
  only->type_name("NAME")->offer(names_of_rows());
  add_whole_number(verb, "--repeat", &options->repeat,
                   "the best of so many or, when they are quick, more, 1 to 1000 (default 3)", 1,
                   1000);
  verb->add_flag("--sizes", options->sizes, "bytes only: no timing");
  auto* device = verb->add_option("--device", options->device,
                                  "cpu, or cuda: the GPU path on a real model's list of tensors");
  device->type_name("NAME")->one_of({"cpu", "cuda"});
  auto* model = verb->add_option("--model", options->on_device.model,
                                 "whose tensors with --device cuda: 8b, 1.7b or moe (default 8b)");
  model->type_name("NAME")->one_of(device_models());
  model->needs(device)->excludes(old_path);
  auto* copies = add_whole_number(verb, "--copies", &options->on_device.copies,
                                  "of each tensor of OLD and NEW with --device cuda, to fill a "
                                  "GPU, 1 to 1000000 (default 1)",
                                  1, 1000000);
  copies->needs(device)->needs(old_path);
  add_threads(verb, context);
  add_chain_bench(verb, context, call);
  add_versions_bench(verb, context, call);
  add_dialects_bench(verb, context, call);
  add_carrier_bench(verb, context, call);
  add_shards_bench(verb, context, call);
  verb->callback([&context, call, options, verb] {
    if (verb->chosen() != nullptr) return;
    if (options->quick) options->params = kQuickParams;
    options->on_device.density = options->density;
    options->on_device.old_path = options->old_path;
    options->on_device.new_path = options->new_path;
    options->on_device.repeat = options->repeat;
    *call = [&context, options] {
      return options->device == "cuda" ? device_bench(context, options->on_device)
                                       : bench(context, *options);
    };
  });
}

}  // namespace deltawire::cli
