#include <deltawire_faults.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <optional>
#include <thread>
#include <type_traits>

#include "base/folder.h"
#include "base/guard.h"
#include "cli/table.h"
#include "deltawire/publisher.h"
#include "deltawire/replica.h"
#include "deltawire/tensor_replica.h"
#include "lab/bench/cases.h"
#include "lab/bench/pipeline.h"
#include "lab/bench/report.h"
#if DELTAWIRE_FAULTS
#include "faults/faulty_store.h"
#endif

namespace deltawire::cli {
namespace {

namespace fs = std::filesystem;

// The location of a chain, as each side sees it.
struct BenchStore {
  std::string name, url;
  StoreOptions publisher, replica;
  bool far = false;  // behind a slow link
};

// Seconds since the step was done.
struct ChainTimes {
  double published = 0, seen = 0, applied = 0;
  std::optional<double> durable;  // on the replica's disk
  std::vector<Phase> phases;      // of both sides on one clock
};

std::vector<PublishTensor> tensors_of(const BenchData& data, bool after) {
  std::vector<PublishTensor> tensors;
  for (const BenchTensor& tensor : data.tensors) {
    const Bytes bytes = after ? tensor.after : tensor.before;
    const uint64_t elements = bytes.size() * 8 / dtype_bits(tensor.dtype);
    tensors.push_back({{tensor.name, tensor.dtype, {elements}, bytes}, {}});
  }
  return tensors;
}

// A model in memory for a TensorReplica to keep.
class HostModel {
 public:
  explicit HostModel(const BenchData& data) {
    for (const BenchTensor& tensor : data.tensors) {
      bytes_.emplace_back(tensor.before.begin(), tensor.before.end());
      const uint64_t elements = tensor.before.size() * 8 / dtype_bits(tensor.dtype);
      tensors_.push_back({tensor.name, tensor.dtype, {elements}, bytes_.back()});
    }
  }
  const std::vector<LiveTensor>& tensors() const { return tensors_; }
  bool holds(const BenchData& data, bool after) const {
    for (size_t i = 0; i < bytes_.size(); ++i) {
      const Bytes wanted = after ? data.tensors[i].after : data.tensors[i].before;
      if (!std::equal(wanted.begin(), wanted.end(), bytes_[i].begin())) return false;
    }
    return true;
  }

 private:
  std::deque<std::vector<uint8_t>> bytes_;
  std::vector<LiveTensor> tensors_;
};

// Polls until a version after `held` exists, then brings the replica to it. Times are those of
// steady_seconds().
template <class AnyReplica>
Status follow_once(AnyReplica* replica, uint64_t held, ChainTimes* times) {
  std::optional<uint64_t> head;
  while (true) {
    DW_ASSIGN_OR_RETURN(head, replica->head());
    times->seen = steady_seconds();
    if (head && *head != held) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  DW_RETURN_IF_ERROR(replica->prepare(head).status());
  DW_ASSIGN_OR_RETURN(PullReport report, replica->commit());
  times->applied = steady_seconds();
  if constexpr (std::is_same_v<AnyReplica, Replica>) {
    DW_RETURN_IF_ERROR(replica->settle(&report));
    times->durable = steady_seconds();
  }
  times->phases = std::move(report.phases);
  return {};
}

// Receives an object into memory that is already there.
class MemorySink final : public Sink {
 public:
  explicit MemorySink(uint64_t size) : bytes_(size) {}
  Status write(uint64_t offset, std::span<const uint8_t> bytes) override {
    std::copy(bytes.begin(), bytes.end(), bytes_.begin() + ptrdiff_t(offset));
    return {};
  }
  Bytes bytes() const { return bytes_; }

 private:
  std::vector<uint8_t> bytes_;
};

class ChainBench {
 public:
  ChainBench(const Context& context, const BenchOptions& options, const BenchData& data,
             fs::path folder)
      : context_(context),
        options_(options),
        data_(data),
        folder_(std::move(folder)),
        pool_(context.threads) {}

  Status run(const BenchStore& place) {
    for (const auto side :
         {&ChainBench::run_deltawire, &ChainBench::run_slime, &ChainBench::run_full}) {
      DW_RETURN_IF_ERROR(check_interrupted());
      DW_ASSIGN_OR_RETURN(const auto near, open_store(place.url, place.publisher));
      DW_ASSIGN_OR_RETURN(const auto far, open_store(place.url, place.replica));
      DW_RETURN_IF_ERROR((this->*side)(place, near, far).at(place.name));
      DW_RETURN_IF_ERROR(clear(*near));
    }
    return {};
  }

  const BenchTable& table() const { return table_; }
  const std::vector<std::pair<std::string, std::vector<Phase>>>& timelines() const {
    return timelines_;
  }

 private:
  using StorePointer = std::shared_ptr<Store>;

  // Frees memory for the next round: the bench's own gateway keeps objects in memory.
  static Status clear(Store& store) {
    std::vector<std::string> names;
    DW_RETURN_IF_ERROR(list_all(store, "", "", [&](const ObjectInfo& object) {
      names.push_back(object.name);
      return true;
    }));
    for (const std::string& name : names) DW_RETURN_IF_ERROR(store.remove(name));
    return {};
  }

  void add(const BenchStore& place, const std::string& what, uint64_t bytes,
           const ChainTimes& times) {
    std::optional<double> link;
    if (place.far) {
      link = double(bytes) / (options_.rate_megabytes * 1e6) +
             4 * options_.round_trip_milliseconds / 1e3;
    }
    table_.add({text_cell(place.name), text_cell(what), bytes_cell(bytes),
                seconds_cell(times.published), seconds_cell(times.seen),
                seconds_cell(times.applied), seconds_cell(times.durable), seconds_cell(link)});
    if (!times.phases.empty()) timelines_.emplace_back(place.name + ": " + what, times.phases);
  }

  Status run_deltawire(const BenchStore& place, const StorePointer& near, const StorePointer& far) {
    PublishOptions how;
    how.limits.threads = context_.threads;
    DW_ASSIGN_OR_RETURN(Publisher publisher, Publisher::open(near, how));
    DW_RETURN_IF_ERROR(publisher.publish(tensors_of(data_, false)).status());
    bool after = false;  // whether the head is the state after the step
    {
      HostModel model(data_);
      TensorReplicaOptions options;
      options.limits.threads = context_.threads;
      options.scratch = folder_;
      DW_ASSIGN_OR_RETURN(TensorReplica replica,
                          TensorReplica::open(far, model.tensors(), options));
      DW_RETURN_IF_ERROR(replica.pull().status());
      DW_RETURN_IF_ERROR(rounds(place, "deltawire, memory", &publisher, &replica, &after));
      if (!model.holds(data_, after)) return internal_error("the tensors are not the version");
    }
    ReplicaOptions options;
    options.limits.threads = context_.threads;
    DW_ASSIGN_OR_RETURN(const WorkFolder local, WorkFolder::make(folder_));
    DW_ASSIGN_OR_RETURN(Replica replica, Replica::open(far, local.path() / "replica", options));
    DW_RETURN_IF_ERROR(replica.pull().status());
    return rounds(place, "deltawire, files", &publisher, &replica, &after);
  }

  // The weights go back and forth between two states; the best round counts.
  template <class AnyReplica>
  Status rounds(const BenchStore& place, const std::string& what, Publisher* publisher,
                AnyReplica* replica, bool* after) {
    ChainTimes best;
    uint64_t bytes = 0;
    for (unsigned round = 0; round < options_.repeat; ++round) {
      DW_RETURN_IF_ERROR(check_interrupted());
      DW_ASSIGN_OR_RETURN(const std::optional<uint64_t> head, replica->head());
      *after = !*after;
      const std::vector<PublishTensor> tensors = tensors_of(data_, *after);
      ChainTimes times;
      Status followed;
      std::thread follower([&] { followed = follow_once(replica, *head, &times); });
      const double start = steady_seconds();
      const Result<PublishReport> sent = publisher->publish(tensors);
      times.published = steady_seconds() - start;
      follower.join();
      DW_RETURN_IF_ERROR(Status(sent.status()));
      DW_RETURN_IF_ERROR(std::move(followed));
      times.seen -= start;
      times.applied -= start;
      if (times.durable) *times.durable -= start;
      std::vector<Phase> phases;
      for (const Phase& phase : sent->phases) {
        phases.push_back({"publish " + phase.name, phase.begin, phase.end});
      }
      for (const Phase& phase : times.phases) {
        phases.push_back(
            {"replica " + phase.name, times.seen + phase.begin, times.seen + phase.end});
      }
      times.phases = std::move(phases);
      if (round > 0 && times.applied >= best.applied) continue;
      best = std::move(times);
      bytes = sent->bytes;
    }
    add(place, what, bytes, best);
    return {};
  }

  // Its receiver patches tensors in memory here; the real one also writes a checkpoint.
  Status run_slime(const BenchStore& place, const StorePointer& near, const StorePointer& far) {
    const Pipelines pipelines = all_pipelines();
    const Pipeline& slime =
        **std::find_if(pipelines.begin(), pipelines.end(),
                       [](const auto& pipeline) { return pipeline->name() == kSlimeName; });
    std::vector<Scratch> scratch(pool_.num_workers());
    reset_work(data_, &pool_);
    const size_t count = data_.tensors.size();
    std::vector<Wire> wires(count);

    const double start = steady_seconds();
    DW_RETURN_IF_ERROR(parallel_try("measuring", &pool_, count, [&](size_t i, unsigned worker) {
      return slime.publish(data_.tensors[i], {nullptr, &scratch[worker]}, &wires[i]);
    }));
    std::vector<uint8_t> object;
    for (const Wire& wire : wires) {
      object.insert(object.end(), wire.payload.begin(), wire.payload.end());
    }
    DW_RETURN_IF_ERROR(near->put("delta", MemoryBody(Bytes(object))));
    const double published = steady_seconds() - start;
    MemorySink sink(object.size());
    DW_RETURN_IF_ERROR(far->download("delta", object.size(), &sink));
    size_t at = 0;
    for (Wire& wire : wires) {
      const Bytes payload = sink.bytes().subspan(at, wire.payload.size());
      std::copy(payload.begin(), payload.end(), wire.payload.begin());
      at += wire.payload.size();
    }
    DW_RETURN_IF_ERROR(
        parallel_try("measuring", &pool_, count, [&](size_t i, unsigned worker) -> Status {
          if (!wires[i].changed) return {};
          return slime.apply(data_.tensors[i], wires[i], {nullptr, &scratch[worker]});
        }));
    add(place, "slime's pipeline", object.size(),
        {published, published, steady_seconds() - start, {}, {}});
    return check_work(data_, kSlimeName, &pool_);
  }

  Status run_full(const BenchStore& place, const StorePointer& near, const StorePointer& far) {
    const Bytes all(data_.after.get(), data_.weights_bytes);
    const double start = steady_seconds();
    DW_RETURN_IF_ERROR(near->put("checkpoint", MemoryBody(all)));
    const double published = steady_seconds() - start;
    MemorySink sink(all.size());
    DW_RETURN_IF_ERROR(far->download("checkpoint", all.size(), &sink));
    add(place, "full copy", all.size(), {published, published, steady_seconds() - start, {}, {}});
    return {};
  }

  const Context& context_;
  const BenchOptions& options_;
  const BenchData& data_;
  const fs::path folder_;
  ThreadPool pool_;
  BenchTable table_{{{"over", "over"},
                     {"how", "how"},
                     {"bytes", "bytes"},
                     {"published_seconds", "published"},
                     {"seen_seconds", "seen"},
                     {"applied_seconds", "applied"},
                     {"durable_seconds", "on disk"},
                     {"link_seconds", "link"}}};
  std::vector<std::pair<std::string, std::vector<Phase>>> timelines_;
};

// One line per phase on a common time axis.
void say_timeline(const Context& context, const std::string& title,
                  const std::vector<Phase>& phases) {
  double end = 1e-9;
  for (const Phase& phase : phases) end = std::max(end, phase.end);
  constexpr int kWidth = 50;
  context.say("\n" + title);
  for (const Phase& phase : phases) {
    const int from = std::min(kWidth - 1, int(phase.begin / end * kWidth));
    const int to = std::max(from + 1, int(phase.end / end * kWidth));
    context.say(fmt::format("  {:<20} {:{}}{:#<{}}{:{}} {:.3f} ... {:.3f} s", phase.name, "", from,
                            "", to - from, "", kWidth - to, phase.begin, phase.end));
  }
}

Status run_places(const BenchOptions& options, const fs::path& folder, ChainBench* bench) {
  BenchStore last{"memory", "memory:bench", {}, {}};
  DW_RETURN_IF_ERROR(bench->run(last));
  DW_RETURN_IF_ERROR(bench->run({"a folder", (folder / "store").string(), {}, {}}));
  if (!options.store.empty()) {
    last = {options.store, options.store, {}, {}};
    last.publisher.endpoint = last.replica.endpoint = options.endpoint;
    DW_RETURN_IF_ERROR(bench->run(last));
  }
#if DELTAWIRE_FAULTS
  // A link: every request waits for a round trip, and all share the rate.
  const auto slow = [&](StoreOptions* side) {
    side->max_bytes_per_second = uint64_t(options.rate_megabytes * 1e6);
    side->wrap = inject_faults(fmt::format("slow:ms={:.0f}", options.round_trip_milliseconds));
  };
  const std::string link =
      fmt::format("{:g} MB/s, {:g} ms", options.rate_megabytes, options.round_trip_milliseconds);
  last.far = true;
  last.name = link + " to replica";
  slow(&last.replica);
  DW_RETURN_IF_ERROR(bench->run(last));
  last.name = link + " on both sides";
  slow(&last.publisher);
  DW_RETURN_IF_ERROR(bench->run(last));
#endif
  return {};
}

}  // namespace

Status bench_chain(const Context& context, const BenchOptions& options) {
  ThreadPool pool(context.threads);
  DW_ASSIGN_OR_RETURN(const BenchData data, make_bench_data(context, options, &pool));
  DW_ASSIGN_OR_RETURN(const WorkFolder folder, WorkFolder::make(options.folder));
  ChainBench bench(context, options, data, folder.path());
  DW_RETURN_IF_ERROR(run_places(options, folder.path(), &bench));
  say_machine(context);
  say_data(context, data);
  bench.table().say(context);
  context.say("\nSeconds since publish() was called. link: bytes / rate + 4 round trips.");
  for (const auto& [title, phases] : bench.timelines()) say_timeline(context, title, phases);
  context.emit({{"machine", this_machine()},
                {"weights_bytes", data.weights_bytes},
                {"density", data.density()},
                {"rows", bench.table().json()}});
  return {};
}

}  // namespace deltawire::cli
