#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/folder.h"
#include "base/guard.h"
#include "base/waves.h"
#include "cli/table.h"
#include "deltawire/delta.h"
#include "lab/bench/cases.h"
#include "lab/bench/data.h"
#include "lab/bench/pipeline.h"
#include "lab/bench/report.h"
#include "tensor/text.h"

namespace deltawire::cli {
namespace {

// How often to measure: at least `repeat` times, and small data until `min_seconds` have passed.
struct Effort {
  unsigned repeat = 1;
  double min_seconds = 0;

  // Calls body() so often. Cancelled once the user interrupts.
  template <class Body>
  Status repeated(const Body& body) const {
    const double begin = steady_seconds();
    for (unsigned i = 0; i < repeat || steady_seconds() - begin < min_seconds; ++i) {
      DW_RETURN_IF_ERROR(check_interrupted());
      DW_RETURN_IF_ERROR(body());
    }
    return {};
  }
};

// ---- codecs and peers

// All tensors on all threads, spread as the product (ours) or a peer spreads them. Owns the
// threads' buffers.
class Spread {
 public:
  Spread(const Pipeline& pipeline, const BenchData& data, ThreadPool* pool)
      : pipeline_(pipeline), data_(data), pool_(pool), scratch_(num_workers(pool)) {
    for (const BenchTensor& tensor : data.tensors) sizes_.push_back(tensor.after.size());
    order_ = largest_first(sizes_.size(), [&](size_t i) { return sizes_[i]; });
  }

  Status publish(std::vector<Wire>* wires) {
    return run([&](size_t i, Worker worker) {
      return pipeline_.publish(data_.tensors[i], worker, &(*wires)[i]);
    });
  }

  Status apply(const std::vector<Wire>& wires) {
    return run([&](size_t i, Worker worker) {
      if (!wires[i].changed) return Status();
      return pipeline_.apply(data_.tensors[i], wires[i], worker);
    });
  }

 private:
  template <class Work>
  Status run(const Work& work) {
    const auto named = [&](size_t i, Worker worker) {
      Status status = work(i, worker);
      if (status.ok()) return status;
      return std::move(status).at(pipeline_.name() + ": tensor " + quote(data_.tensors[i].name));
    };
    if (!pipeline_.peer()) {
      return Waves(sizes_, Waves::Inside::kShared, pool_, nullptr)
          .run(
              [&](size_t i, ThreadPool* inner) {
                return named(i, {inner, nullptr});
              },
              [](size_t) { return Status(); });
    }
    return parallel_try("measuring", pool_, order_.size(), [&](size_t i, unsigned worker) {
      return named(order_[i], {nullptr, &scratch_[worker]});
    });
  }

  const Pipeline& pipeline_;
  const BenchData& data_;
  ThreadPool* const pool_;
  std::vector<Scratch> scratch_;
  std::vector<uint64_t> sizes_;
  std::vector<size_t> order_;  // largest first
};

struct Speed {
  uint64_t payload_bytes = 0;
  double publish = 0, apply = 0;  // seconds, the best
};

void keep_best(double seconds, double* best) {
  if (*best == 0 || seconds < *best) *best = seconds;
}

// Unsupported if the pipeline cannot carry the data. Internal if apply does not produce the new
// weights.
Result<Speed> measure(const Pipeline& pipeline, const BenchData& data, ThreadPool* pool,
                      Effort effort) {
  Spread publisher(pipeline, data, pool), replica(pipeline, data, pool);
  Speed speed;
  DW_RETURN_IF_ERROR(effort.repeated([&]() -> Status {
    std::vector<Wire> wires(data.tensors.size());
    double start = steady_seconds();
    DW_RETURN_IF_ERROR(publisher.publish(&wires));
    keep_best(steady_seconds() - start, &speed.publish);
    speed.payload_bytes = 0;
    for (const Wire& wire : wires) speed.payload_bytes += wire.payload.size();
    reset_work(data, pool);
    start = steady_seconds();
    DW_RETURN_IF_ERROR(replica.apply(wires));
    keep_best(steady_seconds() - start, &speed.apply);
    return check_work(data, pipeline.name(), pool);
  }));
  return speed;
}

// ---- the report

Status check_names(const std::vector<std::string>& wanted, const Pipelines& pipelines) {
  std::vector<std::string> known;
  for (const auto& one : pipelines) known.push_back(one->name());
  for (const std::string& name : wanted) {
    if (std::find(known.begin(), known.end(), name) == known.end()) {
      return invalid_argument(
          fmt::format("--codec: expected some of {}, got {}", fmt::join(known, ", "), quote(name)));
    }
  }
  return {};
}

// The size of a delta as `deltawire diff` writes it.
Result<uint64_t> delta_file_bytes(const Context& context, const BenchOptions& options) {
  DW_ASSIGN_OR_RETURN(const WorkFolder folder, WorkFolder::make({}));
  ProgressBar bar(context, "diff");
  DiffOptions diff;
  diff.threads = context.threads;
  diff.progress = bar.callback();
  DW_ASSIGN_OR_RETURN(const DiffReport report,
                      diff_checkpoints(options.old_path, options.new_path,
                                       folder.path() / "delta.safetensors", diff));
  return report.delta_bytes;
}

void say_bound(const Context& context, const Bound& bound, double changed) {
  if (changed == 0) return;
  context.say(
      fmt::format("bound     {:.0f} bytes, {:.3f} per changed element: positions {:.3f}, "
                  "values {:.3f}, both given the old exponent",
                  bound.conditioned(), bound.conditioned() / changed, bound.positions / changed,
                  bound.values / changed));
}

class CodecsBench {
 public:
  CodecsBench(const Context& context, const BenchOptions& options, const BenchData& data,
              ThreadPool* all_threads)
      : context_(context), options_(options), data_(data) {
    if (!options.sizes && all_threads->num_workers() > 1) pools_.push_back(nullptr);
    pools_.push_back(all_threads);
  }

  Result<BenchTable> rows(const Pipelines& pipelines, const Bound& bound) const {
    std::vector<BenchTable::Column> columns = {{"name", "codec"},
                                               {"bytes", "bytes"},
                                               {"bytes_per_changed", "bytes/change"},
                                               {"over_bound", "x bound"}};
    for (const char* what : {"encode", "apply"}) {
      for (ThreadPool* pool : pools_) {
        if (!options_.sizes) columns.push_back(column(what, pool));
      }
    }
    BenchTable table(std::move(columns));
    for (const auto& pipeline : pipelines) {
      const auto& only = options_.codecs;
      if (!only.empty() && std::find(only.begin(), only.end(), pipeline->name()) == only.end()) {
        continue;
      }
      DW_RETURN_IF_ERROR(add_row(*pipeline, bound, &table));
    }
    return table;
  }

 private:
  static BenchTable::Column column(const std::string& what, ThreadPool* pool) {
    const unsigned threads = num_workers(pool);
    return {fmt::format("{}_bytes_per_s_{}", what, threads),
            fmt::format("{}, {} thr", what, threads)};
  }

  Status add_row(const Pipeline& pipeline, const Bound& bound, BenchTable* table) const {
    std::vector<Speed> speeds;
    for (ThreadPool* pool : pools_) {
      ProgressBar bar(context_, fmt::format("{}, {} thr", pipeline.name(), num_workers(pool)));
      Result<Speed> speed = measure(pipeline, data_, pool, effort_);
      if (!speed.ok() && speed.status().code() == Code::kUnsupported) {
        context_.say(fmt::format("left out  {}", speed.status().message()));
        return {};
      }
      if (!speed.ok()) return std::move(speed).status();
      speeds.push_back(*speed);
    }
    const uint64_t bytes = speeds[0].payload_bytes;
    std::vector<Cell> cells = {text_cell(pipeline.name()),
                               {bytes, std::to_string(bytes)},
                               ratio_cell(double(bytes), double(data_.num_changed)),
                               ratio_cell(double(bytes), bound.conditioned())};
    for (const auto seconds : {&Speed::publish, &Speed::apply}) {
      for (const Speed& speed : speeds) {
        if (!options_.sizes)
          cells.push_back(rate_cell(double(data_.weights_bytes) / (speed.*seconds)));
      }
    }
    table->add(std::move(cells));
    return {};
  }

  const Context& context_;
  const BenchOptions& options_;
  const BenchData& data_;
  const Effort effort_{options_.sizes ? 1 : options_.repeat, options_.sizes ? 0 : 0.25};
  std::vector<ThreadPool*> pools_;  // null: one thread
};

}  // namespace

Status bench_codecs(const Context& context, const BenchOptions& options) {
  const Pipelines pipelines = all_pipelines();
  DW_RETURN_IF_ERROR(check_names(options.codecs, pipelines));
  ThreadPool pool(context.threads);
  DW_ASSIGN_OR_RETURN(const BenchData data, make_bench_data(context, options, &pool));
  const Bound bound = bound_of(data.tensors, &pool);
  const double changed = double(data.num_changed);
  Json report = {{"machine", this_machine()},
                 {"data",
                  {{"source", data.source},
                   {"tensors", data.tensors.size()},
                   {"tensors_left_out", data.num_skipped},
                   {"elements", data.num_elements},
                   {"changed", data.num_changed},
                   {"weights_bytes", data.weights_bytes}}},
                 {"bound",
                  {{"bytes", bound.conditioned()},
                   {"positions_bytes", bound.positions},
                   {"values_bytes", bound.values}}}};
  say_machine(context);
  say_data(context, data);
  say_bound(context, bound, changed);
  if (!options.old_path.empty() && changed != 0) {
    DW_ASSIGN_OR_RETURN(const uint64_t bytes, delta_file_bytes(context, options));
    context.say(
        fmt::format("file      {} bytes, {:.3f} per changed element, {:.3f} x the bound: a "
                    "whole delta on disk",
                    bytes, double(bytes) / changed, double(bytes) / bound.conditioned()));
    report["file_bytes"] = bytes;
  }
  const CodecsBench bench(context, options, data, &pool);
  DW_ASSIGN_OR_RETURN(const BenchTable rows, bench.rows(pipelines, bound));
  rows.say(context);
  report["rows"] = rows.json();
  context.say(
      "\nBytes are payloads, without names and headers. Speeds are GB/s of weights, the "
      "best\nround. "
      "Every result was compared with the new weights. trl-v1: int32 positions and values.\n"
      "slime: XOR, zstd level 1 and xxh3-128 of each tensor. deltawire: tight and sum128 of each\n"
      "tensor. Peers are written here in C++, with "
      "buffers that are kept and one thread for each tensor: without the cost of their Python.");
  context.emit(report);
  return {};
}

}  // namespace deltawire::cli
