#include "lab/bench/measure.h"

#include <malloc.h>

#include <algorithm>
#include <fstream>
#include <numeric>

#include "base/guard.h"
#include "base/waves.h"
#include "cli/context.h"
#include "tensor/text.h"

namespace deltawire::cli {
namespace {

// "VmHWM:" or "VmRSS:" of /proc/self/status, in bytes.
std::optional<uint64_t> status_bytes(const std::string& field) {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    if (uint64_t kib = 0; word == field && status >> kib) return kib << 10;
  }
  return std::nullopt;
}

// All tensors on all threads, the way the product (ours) or a peer spreads them. What threads keep
// lives as long as this.
class Spread {
 public:
  Spread(const Pipeline& pipeline, const BenchData& data, ThreadPool* pool)
      : pipeline_(pipeline), data_(data), pool_(pool), scratch_(num_workers(pool)) {
    for (const BenchTensor& tensor : data.tensors) sizes_.push_back(tensor.after.size());
    order_.resize(sizes_.size());
    std::iota(order_.begin(), order_.end(), size_t{0});
    std::stable_sort(order_.begin(), order_.end(),
                     [&](size_t a, size_t b) { return sizes_[a] > sizes_[b]; });
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

void keep_best(double seconds, double* best) {
  if (*best == 0 || seconds < *best) *best = seconds;
}

}  // namespace

void MemoryPeak::reset() {
  malloc_trim(0);
  std::ofstream clear("/proc/self/clear_refs");
  const bool cleared = bool(clear << "5" << std::flush);
  before_ = cleared ? status_bytes("VmRSS:") : std::nullopt;
}

std::optional<uint64_t> MemoryPeak::extra_bytes() const {
  const std::optional<uint64_t> peak = status_bytes("VmHWM:");
  if (!before_ || !peak) return std::nullopt;
  return *peak - std::min(*peak, *before_);
}

Result<Speed> measure(const Pipeline& pipeline, const BenchData& data, ThreadPool* pool,
                      Effort effort, const Progress& progress) {
  Spread publisher(pipeline, data, pool), replica(pipeline, data, pool);
  Speed speed;
  speed.threads = num_workers(pool);
  const double begin = now_seconds();
  for (unsigned i = 0; i < effort.repeat || now_seconds() - begin < effort.min_seconds; ++i) {
    std::vector<Wire> wires(data.tensors.size());
    MemoryPeak peak;
    if (i == 0) peak.reset();
    double start = now_seconds();
    DW_RETURN_IF_ERROR(publisher.publish(&wires));
    keep_best(now_seconds() - start, &speed.publish_seconds);
    if (i == 0) speed.publish_extra_bytes = peak.extra_bytes();

    speed.payload_bytes = 0;
    for (const Wire& wire : wires) speed.payload_bytes += wire.payload.size();
    reset_work(data, pool);
    if (i == 0) peak.reset();
    start = now_seconds();
    DW_RETURN_IF_ERROR(replica.apply(wires));
    keep_best(now_seconds() - start, &speed.apply_seconds);
    if (i == 0) speed.apply_extra_bytes = peak.extra_bytes();
    DW_RETURN_IF_ERROR(check_work(data, pipeline.name(), pool));
    const uint64_t done = (i + 1) * data.weights_bytes;
    if (!progress(done, std::max(done, effort.repeat * data.weights_bytes))) {
      return cancelled("stopped on request");
    }
  }
  return speed;
}

}  // namespace deltawire::cli
