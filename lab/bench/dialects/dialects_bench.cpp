#include "lab/bench/dialects_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <optional>

#include "base/command.h"
#include "base/guard.h"
#include "base/json.h"
#include "base/work_folder.h"
#include "cli/options.h"
#include "cli/units.h"
#include "dialect/dialect.h"
#include "lab/bench/data.h"
#include "lab/bench/machine.h"
#include "slime_peer.h"
#include "store/directory_store.h"
#include "tensor/safetensors_writer.h"
#include "tensor/text.h"

namespace deltawire::cli {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr double kGoal = 3;  // times theirs

struct DialectsBenchArguments {
  std::string params = "500M", folder, python = "python3";
  double density = 0.012;
  unsigned repeat = 3;
  bool alone = false;
};

// Seconds, the best of all repetitions.
struct DialectTimes {
  double write = 0, apply_theirs = 0, apply_ours = 0;
};

TensorSpec bench_spec(const BenchTensor& tensor) {
  return {tensor.name, tensor.dtype, {tensor.after.size() * 8 / dtype_bits(tensor.dtype)}};
}

Status write_state(const BenchData& data, bool after, const fs::path& path) {
  std::vector<TensorSpec> specs;
  for (const BenchTensor& tensor : data.tensors) specs.push_back(bench_spec(tensor));
  DW_ASSIGN_OR_RETURN(SafetensorsWriter writer, SafetensorsWriter::create(path, specs));
  for (const BenchTensor& tensor : data.tensors) {
    DW_RETURN_IF_ERROR(writer.write(after ? tensor.after : tensor.before));
  }
  return writer.commit();
}

Status write_version(const BenchData& data, const fs::path& folder, ThreadPool* pool) {
  ForeignDraft draft;
  draft.version = 1;
  for (const BenchTensor& tensor : data.tensors) draft.tensors.push_back(bench_spec(tensor));
  const auto store = std::make_shared<DirectoryStore>(folder);
  DW_ASSIGN_OR_RETURN(const auto writer, find_dialect("slime")->create(store, draft, {}));
  for (size_t i = 0; i < data.tensors.size(); ++i) {
    const BenchTensor& tensor = data.tensors[i];
    DW_RETURN_IF_ERROR(writer->add(draft.tensors[i], tensor.before, tensor.after, pool));
  }
  return writer->finish();
}

// Largest first, a tensor to a thread.
Status apply_version(const BenchData& data, const fs::path& folder, ThreadPool* pool) {
  DirectoryStore store(folder);
  DW_ASSIGN_OR_RETURN(const auto version, find_dialect("slime")->open(store, 1));
  struct Job {
    size_t index;
    const BenchTensor* tensor;
  };
  std::vector<Job> jobs;
  for (size_t i = 0; i < version->info().tensors.size(); ++i) {
    const auto it =
        std::ranges::find(data.tensors, version->info().tensors[i].name, &BenchTensor::name);
    if (it == data.tensors.end()) return internal_error("a tensor that was not written");
    jobs.push_back({i, &*it});
  }
  std::ranges::stable_sort(jobs, std::greater<>(),
                           [](const Job& job) { return job.tensor->work.size(); });
  DW_RETURN_IF_ERROR(parallel_try("measuring", pool, jobs.size(), [&](size_t i, unsigned) {
    return version->apply(jobs[i].index, bench_spec(*jobs[i].tensor), jobs[i].tensor->work,
                          nullptr);
  }));
  return version->check_unchanged();
}

class DialectsBench {
 public:
  DialectsBench(const DialectsBenchArguments& options, const BenchData& data,
                const fs::path& folder, ThreadPool* pool)
      : options_(options), data_(data), folder_(folder), pool_(pool) {}

  Status run() {
    DW_RETURN_IF_ERROR(measure_write());
    if (!options_.alone) DW_RETURN_IF_ERROR(run_peer());
    DW_ASSIGN_OR_RETURN(ours.apply_ours, measure_apply(folder_ / "ours"));
    if (!options_.alone) {
      DW_ASSIGN_OR_RETURN(ours.apply_theirs, measure_apply(folder_ / "theirs"));
    }
    return {};
  }

  DialectTimes ours, theirs;
  uint64_t our_bytes = 0, their_bytes = 0;

 private:
  static uint64_t size_of(const fs::path& folder) {
    uint64_t size = 0;
    for (const auto& entry : fs::recursive_directory_iterator(folder)) {
      if (entry.is_regular_file()) size += entry.file_size();
    }
    return size;
  }

  Result<double> best_of(const std::function<Status()>& prepare,
                         const std::function<Status()>& work) const {
    double best = 0;
    for (unsigned i = 0; i < options_.repeat; ++i) {
      DW_RETURN_IF_ERROR(check_interrupted());
      DW_RETURN_IF_ERROR(prepare());
      const double begin = now_seconds();
      DW_RETURN_IF_ERROR(work());
      const double seconds = now_seconds() - begin;
      best = i == 0 ? seconds : std::min(best, seconds);
    }
    return best;
  }

  Status measure_write() {
    const fs::path to = folder_ / "ours";
    const auto clear = [&]() -> Status {
      std::error_code failed;
      fs::remove_all(to, failed);
      return failed ? io_error(to.string() + ": " + failed.message()) : Status();
    };
    DW_ASSIGN_OR_RETURN(ours.write,
                        best_of(clear, [&] { return write_version(data_, to, pool_); }));
    our_bytes = size_of(to);
    return {};
  }

  Result<double> measure_apply(const fs::path& from) const {
    const auto prepare = [&]() -> Status {
      reset_work(data_, pool_);
      return {};
    };
    DW_ASSIGN_OR_RETURN(const double best,
                        best_of(prepare, [&] { return apply_version(data_, from, pool_); }));
    DW_RETURN_IF_ERROR(check_work(data_, "slime", pool_));
    return best;
  }

  // Their pipeline, in a process of its own, on files with the same weights.
  Status run_peer() {
    DW_RETURN_IF_ERROR(write_state(data_, false, folder_ / "old.safetensors"));
    DW_RETURN_IF_ERROR(write_state(data_, true, folder_ / "new.safetensors"));
    DW_RETURN_IF_ERROR(write_text_file(folder_ / "slime_peer.py", kSlimePeerScript));
    // It runs in another folder; a bare name is looked up in PATH.
    const bool is_path = options_.python.find('/') != std::string::npos;
    const std::string python =
        is_path ? std::filesystem::absolute(options_.python).string() : options_.python;
    const std::string command = fmt::format(
        "cd \"$DELTAWIRE_BENCH_FOLDER\" && exec \"$DELTAWIRE_BENCH_PYTHON\" slime_peer.py "
        "old.safetensors "
        "new.safetensors theirs ours {} {}",
        num_workers(pool_), options_.repeat);
    std::string output;
    CommandOptions how;
    how.environment = {{"DELTAWIRE_BENCH_FOLDER", folder_.string()},
                       {"DELTAWIRE_BENCH_PYTHON", python}};
    how.output = &output;
    if (Status status = run_command(command, how); !status.ok()) {
      return std::move(status).at(
          options_.python +
          " needs numpy, zstandard and xxhash (--python PATH: another one; --alone: without)");
    }
    const auto json = parse_json(output);
    if (!json.is_object()) return internal_error("slime_peer.py printed " + quote(output));
    theirs = {json.value("write", 0.0), json.value("apply_theirs", 0.0),
              json.value("apply_ours", 0.0)};
    their_bytes = size_of(folder_ / "theirs");
    return {};
  }

  const DialectsBenchArguments& options_;
  const BenchData& data_;
  const fs::path folder_;
  ThreadPool* const pool_;
};

struct DialectRow {
  const char* what;
  double ours, theirs;  // seconds; 0: not measured
};

std::vector<DialectRow> dialect_rows(const DialectsBench& bench) {
  return {{"write", bench.ours.write, bench.theirs.write},
          {"apply their files", bench.ours.apply_theirs, bench.theirs.apply_theirs},
          {"apply our files", bench.ours.apply_ours, bench.theirs.apply_ours}};
}

void say_dialects(const Context& context, const BenchData& data, const DialectsBench& bench,
                  unsigned threads) {
  const auto rate = [&](double seconds) {
    return seconds == 0 ? std::string("-")
                        : fmt::format("{:.2f} GB/s", double(data.weights_bytes) / 1e9 / seconds);
  };
  context.say(fmt::format("data      {}, {}, {:.2f} % changed; {}", data.source,
                          human_bytes(double(data.weights_bytes)), data.density() * 100,
                          plural(threads, "thread")));
  context.say(fmt::format("{:<20} {:>12} {:>12} {:>8}", "slime, xor", "deltawire", "theirs", ""));
  for (const DialectRow& row : dialect_rows(bench)) {
    const std::string times =
        row.theirs == 0 || row.ours == 0 ? "" : fmt::format("{:.1f} x", row.theirs / row.ours);
    context.say(fmt::format("{:<20} {:>12} {:>12} {:>8}", row.what, rate(row.ours),
                            rate(row.theirs), times));
  }
  const auto size = [&](uint64_t bytes) {
    return bytes == 0 || data.num_changed == 0
               ? std::string("-")
               : fmt::format("{:.2f} B", double(bytes) / double(data.num_changed));
  };
  context.say(fmt::format("{:<20} {:>12} {:>12}", "a changed element", size(bench.our_bytes),
                          size(bench.their_bytes)));
}

Json dialects_json(const BenchData& data, const DialectsBench& bench, unsigned threads) {
  Json rows = Json::array();
  bool met = true;
  for (const DialectRow& row : dialect_rows(bench)) {
    rows.push_back(
        {{"what", row.what}, {"deltawire_seconds", row.ours}, {"their_seconds", row.theirs}});
    met = met && row.theirs >= kGoal * row.ours;
  }
  const Machine machine = this_machine();
  return {{"machine", {{"cpu", machine.cpu}, {"arch", machine.arch}, {"kernels", machine.kernels}}},
          {"threads", threads},
          {"weights_bytes", data.weights_bytes},
          {"changed_elements", data.num_changed},
          {"rows", rows},
          {"deltawire_bytes", bench.our_bytes},
          {"their_bytes", bench.their_bytes},
          {"goal_met", met}};
}

int dialects_bench(const Context& context, const DialectsBenchArguments& options) {
  ThreadPool pool(context.threads);
  const auto params = parse_count(options.params);
  if (!params.ok()) return context.fail(params.status());
  const auto run = [&]() -> Status {
    std::optional<BenchData> data;
    {
      ProgressBar bar(context, "simulate");
      DW_ASSIGN_OR_RETURN(data,
                          simulate_bench_data(*params, options.density, 1, &pool, bar.callback()));
    }
    DW_ASSIGN_OR_RETURN(const WorkFolder work, WorkFolder::make(options.folder));
    DialectsBench bench(options, *data, work.path(), &pool);
    DW_RETURN_IF_ERROR(bench.run());
    say_dialects(context, *data, bench, pool.num_workers());
    context.emit(dialects_json(*data, bench, pool.num_workers()));
    return {};
  };
  const Status status = run();
  return status.ok() ? context.succeed() : context.fail(status);
}

}  // namespace

void add_dialects_bench(Command* bench, Context& context, Call* call) {
  Command* verb = bench->add_verb(
      "dialects", "Measure other projects' files against what their own Python does");
  verb->set_footer(
      "Examples:\n"
      "  deltawire bench dialects --python build/venv/bin/python   it needs numpy, zstandard, "
      "xxhash\n"
      "  deltawire bench dialects --alone --params 100M            deltawire alone");
  auto options = std::make_shared<DialectsBenchArguments>();
  verb->add_option("--params", options->params, "parameters of the simulated model (500M)")
      ->type_name("N");
  verb->add_option("--density", options->density, "share of elements that change (0.012)");
  verb->add_option("--repeat", options->repeat, "measure so often, the best counts (3)")
      ->between(1, 1000);
  verb->add_option("--folder", options->folder, "where to work (default: the temporary folder)");
  verb->add_option("--python", options->python, "the Python that runs their side (python3)");
  verb->add_flag("--alone", options->alone, "leave their side out");
  add_threads(verb, context);
  verb->add_flag("--json", context.json, "print one JSON object on stdout and nothing else there");
  verb->add_flag("-q,--quiet", context.quiet, "print no report and no progress");
  verb->final_callback([&context, call, options] {
    *call = [&context, options] { return dialects_bench(context, *options); };
  });
}

}  // namespace deltawire::cli
