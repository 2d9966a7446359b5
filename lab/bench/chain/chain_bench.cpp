#include "lab/bench/chain_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <thread>
#include <type_traits>

#include "base/guard.h"
#include "base/thread_pool.h"
#include "cli/units.h"
#include "deltawire/publisher.h"
#include "deltawire/replica.h"
#include "deltawire/tensor_replica.h"
#include "lab/bench/chain/both_sides.h"
#include "lab/bench/chain/wan_link.h"
#include "lab/bench/data.h"
#include "lab/bench/pipeline.h"
#include "lab/demo/gateway.h"

namespace deltawire::cli {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

struct ChainBenchArguments {
  std::string params = "500M";
  double density = 0.012;
  double rate_megabytes = 100, round_trip_milliseconds = 50;
  unsigned repeat = 3;
  std::string folder;  // to work in
  bool s3 = true;
  bool peers = true;
  bool slow_start = false;
};

// Where a chain lives in one part of the bench, as each side sees it.
struct BenchStore {
  std::string name, url;
  StoreOptions publisher, replica;
  bool far = false;  // a slow link is on the way
};

struct ChainRow {
  std::string place, what;
  uint64_t bytes = 0;
  // Seconds since the step was done: published, seen by the replica, applied, on the replica's
  // disk.
  double published = 0, seen = 0, applied = 0;
  std::optional<double> durable;
  std::optional<double> link;  // bytes / rate + 4 round trips
  std::vector<Phase> phases;   // of both sides on one clock
};

// Makes room for the next one: a gateway of the bench's own keeps its objects in memory.
Status clear(Store& store) {
  std::vector<std::string> names;
  DW_RETURN_IF_ERROR(list_all(store, "", "", [&](const ObjectInfo& object) {
    names.push_back(object.name);
    return true;
  }));
  for (const std::string& name : names) DW_RETURN_IF_ERROR(store.remove(name));
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
  ChainBench(const Context& context, const ChainBenchArguments& options, const BenchData& data,
             fs::path folder)
      : context_(context),
        options_(options),
        data_(data),
        folder_(std::move(folder)),
        pool_(context.threads) {}

  Status run(const BenchStore& place) {
    DW_RETURN_IF_ERROR(run_deltawire(place).at(place.name));
    if (!options_.peers) return {};
    DW_RETURN_IF_ERROR(run_slime(place).at(place.name));
    return run_full(place).at(place.name);
  }

  const std::vector<ChainRow>& rows() const { return rows_; }

 private:
  void add(const BenchStore& place, ChainRow row) {
    row.place = place.name;
    if (place.far) {
      row.link = double(row.bytes) / (options_.rate_megabytes * 1e6) +
                 4 * options_.round_trip_milliseconds / 1e3;
    }
    rows_.push_back(std::move(row));
  }

  Status run_deltawire(const BenchStore& place) {
    const std::string url = place.url + "/deltawire";
    DW_ASSIGN_OR_RETURN(const std::shared_ptr<Store> near, open_store(url, place.publisher));
    DW_ASSIGN_OR_RETURN(const std::shared_ptr<Store> far, open_store(url, place.replica));
    PublishOptions how;
    how.limits.threads = context_.threads;
    DW_ASSIGN_OR_RETURN(Publisher publisher, Publisher::open(near, how));
    DW_RETURN_IF_ERROR(publisher.publish(tensors_of(data_, false)).status());
    bool after = false;  // what the head is
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
    const fs::path local = folder_ / ("replica-" + std::to_string(rows_.size()));
    DW_ASSIGN_OR_RETURN(Replica replica, Replica::open(far, local, options));
    DW_RETURN_IF_ERROR(replica.pull().status());
    DW_RETURN_IF_ERROR(rounds(place, "deltawire, files", &publisher, &replica, &after));
    std::error_code ignored;
    fs::remove_all(local, ignored);
    return clear(*near);
  }

  // The weights go back and forth between two states; the best round counts.
  template <class AnyReplica>
  Status rounds(const BenchStore& place, const std::string& what, Publisher* publisher,
                AnyReplica* replica, bool* after) {
    std::optional<ChainRow> best;
    for (unsigned round = 0; round < options_.repeat; ++round) {
      DW_ASSIGN_OR_RETURN(const std::optional<uint64_t> head, replica->head());
      *after = !*after;
      const std::vector<PublishTensor> tensors = tensors_of(data_, *after);
      Followed followed;
      std::thread follower([&] { followed = follow_once(replica, *head); });
      const double start = now_seconds();
      const Result<PublishReport> sent = publisher->publish(tensors);
      const double published = now_seconds();
      follower.join();
      DW_RETURN_IF_ERROR(Status(sent.status()));
      DW_RETURN_IF_ERROR(std::move(followed.status));
      ChainRow row{
          {}, what, sent->bytes, published - start, followed.seen - start, followed.applied - start,
          {}, {},   {}};
      if (std::is_same_v<AnyReplica, Replica>) row.durable = followed.durable - start;
      for (const Phase& phase : sent->phases) {
        row.phases.push_back({"publish " + phase.name, phase.begin, phase.end});
      }
      for (const Phase& phase : followed.report.phases) {
        const double begin = followed.seen - start;
        row.phases.push_back({"replica " + phase.name, begin + phase.begin, begin + phase.end});
      }
      if (!best || row.applied < best->applied) best = std::move(row);
    }
    add(place, std::move(*best));
    return {};
  }

  // Its receiver patches tensors in memory here; the real one also writes a checkpoint.
  Status run_slime(const BenchStore& place) {
    const Pipelines peers = peer_pipelines();
    const auto slime = std::find_if(peers.begin(), peers.end(), [](const auto& pipeline) {
      return pipeline->name() == kSlimeName;
    });
    DW_ASSIGN_OR_RETURN(const auto near, open_store(place.url + "/slime", place.publisher));
    DW_ASSIGN_OR_RETURN(const auto far, open_store(place.url + "/slime", place.replica));
    std::vector<Scratch> scratch(pool_.num_workers());
    reset_work(data_, &pool_);
    const size_t count = data_.tensors.size();
    std::vector<Wire> wires(count);

    const double start = now_seconds();
    DW_RETURN_IF_ERROR(parallel_try("measuring", &pool_, count, [&](size_t i, unsigned worker) {
      return (*slime)->publish(data_.tensors[i], {nullptr, &scratch[worker]}, &wires[i]);
    }));
    std::vector<uint8_t> object;
    for (const Wire& wire : wires) {
      object.insert(object.end(), wire.payload.begin(), wire.payload.end());
    }
    DW_RETURN_IF_ERROR(near->put("delta", MemoryBody(Bytes(object))));
    const double published = now_seconds();
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
          return (*slime)->apply(data_.tensors[i], wires[i], {nullptr, &scratch[worker]});
        }));
    const double applied = now_seconds();
    add(place, {{},
                "slime's pipeline",
                object.size(),
                published - start,
                published - start,
                applied - start,
                {},
                {},
                {}});
    DW_RETURN_IF_ERROR(clear(*near));
    return check_work(data_, kSlimeName, &pool_);
  }

  Status run_full(const BenchStore& place) {
    DW_ASSIGN_OR_RETURN(const auto near, open_store(place.url + "/full", place.publisher));
    DW_ASSIGN_OR_RETURN(const auto far, open_store(place.url + "/full", place.replica));
    const Bytes all(data_.after.data(), data_.weights_bytes);
    const double start = now_seconds();
    DW_RETURN_IF_ERROR(near->put("checkpoint", MemoryBody(all)));
    const double published = now_seconds() - start;
    MemorySink sink(all.size());
    DW_RETURN_IF_ERROR(far->download("checkpoint", all.size(), &sink));
    add(place,
        {{}, "full copy", all.size(), published, published, now_seconds() - start, {}, {}, {}});
    return clear(*near);
  }

  const Context& context_;
  const ChainBenchArguments& options_;
  const BenchData& data_;
  const fs::path folder_;
  ThreadPool pool_;
  std::vector<ChainRow> rows_;
};

// One line per phase on a common time axis.
void say_timeline(const Context& context, const ChainRow& row) {
  double end = 0;
  for (const Phase& phase : row.phases) end = std::max(end, phase.end);
  if (end == 0) return;
  constexpr int kWidth = 50;
  context.say("");
  context.say(row.place + ": " + row.what);
  for (const Phase& phase : row.phases) {
    const int from = std::min(kWidth - 1, int(phase.begin / end * kWidth));
    const int to = std::max(from + 1, int(phase.end / end * kWidth));
    context.say(fmt::format("  {:<20} {:{}}{:#<{}}{:{}} {:.3f} ... {:.3f} s", phase.name, "", from,
                            "", to - from, "", kWidth - to, phase.begin, phase.end));
  }
}

Json phases_json(const std::vector<Phase>& phases) {
  Json list = Json::array();
  for (const Phase& phase : phases) {
    list.push_back({{"name", phase.name}, {"begin", phase.begin}, {"end", phase.end}});
  }
  return list;
}

// What the same took where nothing is on the way: the work of both sides, on one machine.
double work_seconds(const std::vector<ChainRow>& rows, const std::string& what) {
  for (const ChainRow& row : rows) {
    if (row.what == what) return row.applied;
  }
  return 0;
}

Json optional_json(const std::optional<double>& value) { return value ? Json(*value) : Json(); }

void report(const Context& context, const BenchData& data, const std::vector<ChainRow>& rows) {
  context.say(fmt::format("data      {}: {} of weights, {} changed", data.source,
                          human_bytes(double(data.weights_bytes)), percent(data.density())));
  context.say("");
  constexpr const char* kLine = "{:<28} {:<18} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9}  {:>5} {:>6}";
  context.say(fmt::format(kLine, "over", "how", "bytes", "published", "seen", "applied", "on disk",
                          "link", "x", "beyond"));
  Json list = Json::array();
  for (const ChainRow& row : rows) {
    const double beyond = row.applied - work_seconds(rows, row.what);
    const auto times = [](double value) { return fmt::format("{:.2f}", value); };
    context.say(fmt::format(
        kLine, row.place, row.what, human_bytes(double(row.bytes)), seconds(row.published),
        seconds(row.seen), seconds(row.applied), row.durable ? seconds(*row.durable) : "",
        row.link ? seconds(*row.link) : "", row.link ? times(row.applied / *row.link) : "",
        row.link ? times(beyond / *row.link) : ""));
    list.push_back({{"over", row.place},
                    {"how", row.what},
                    {"bytes", row.bytes},
                    {"published_seconds", row.published},
                    {"seen_seconds", row.seen},
                    {"applied_seconds", row.applied},
                    {"durable_seconds", optional_json(row.durable)},
                    {"link_seconds", optional_json(row.link)},
                    {"beyond_work_seconds", row.link ? Json(beyond) : Json()},
                    {"phases", phases_json(row.phases)}});
  }
  context.say("");
  context.say(
      "link: bytes / rate + 4 round trips; x: applied / link; beyond: the same without the time "
      "that it takes in memory, with no link");
  for (const ChainRow& row : rows) say_timeline(context, row);
  context.emit(
      {{"weights_bytes", data.weights_bytes}, {"density", data.density()}, {"rows", list}});
}

Status run_links(const ChainBenchArguments& options, const Gateway& gateway, ChainBench* bench) {
  const std::string target = gateway.endpoint().substr(gateway.endpoint().rfind('/') + 1);
  const auto link = [&] {
    return WanLink::start(target, options.rate_megabytes * 1e6,
                          options.round_trip_milliseconds / 1e3, options.slow_start);
  };
  const auto through = [](const WanLink& one) {
    StoreOptions store;
    store.endpoint = "http://127.0.0.1:" + std::to_string(one.port());
    return store;
  };
  StoreOptions direct;
  direct.endpoint = gateway.endpoint();
  DW_ASSIGN_OR_RETURN(const WanLink up, link());
  DW_ASSIGN_OR_RETURN(const WanLink down, link());
  const std::string name =
      fmt::format("{:g} MB/s, {:g} ms", options.rate_megabytes, options.round_trip_milliseconds);
  const std::string url = "s3://" + gateway.bucket();
  DW_RETURN_IF_ERROR(
      bench->run({name + " to replica", url + "/down", direct, through(down), true}));
  return bench->run({name + " on both sides", url + "/both", through(up), through(down), true});
}

Status run_places(const Context& context, const ChainBenchArguments& options, const BenchData& data,
                  const fs::path& folder, std::vector<ChainRow>* rows) {
  ChainBench bench(context, options, data, folder);
  DW_RETURN_IF_ERROR(bench.run({"memory, no link", "memory:bench", {}, {}, false}));
  DW_RETURN_IF_ERROR(bench.run({"a folder", (folder / "store").string(), {}, {}, false}));
  if (options.s3) {
    DW_ASSIGN_OR_RETURN(const Gateway gateway, Gateway::start(folder / "rgw"));
    StoreOptions direct;
    direct.endpoint = gateway.endpoint();
    DW_RETURN_IF_ERROR(
        bench.run({"RADOS Gateway", "s3://" + gateway.bucket() + "/near", direct, direct, false}));
    DW_RETURN_IF_ERROR(run_links(options, gateway, &bench));
  }
  *rows = bench.rows();
  return {};
}

int chain_bench(const Context& context, const ChainBenchArguments& options) {
  const Result<uint64_t> params = parse_count(options.params);
  if (!params.ok()) return context.fail(params.status());
  const std::string parent =
      options.folder.empty() ? fs::temp_directory_path().string() : options.folder;
  std::string folder = parent + "/deltawire-bench.XXXXXX";
  if (::mkdtemp(folder.data()) == nullptr) {
    return context.fail(io_error(folder + ": cannot make a folder"));
  }
  ThreadPool pool(context.threads);
  std::vector<ChainRow> rows;
  Result<BenchData> data = [&] {
    ProgressBar bar(context, "simulate");
    return simulate_bench_data(*params, options.density, 1, &pool, bar.callback());
  }();
  const Status status =
      data.ok() ? run_places(context, options, *data, folder, &rows) : Status(data.status());
  std::error_code ignored;
  fs::remove_all(folder, ignored);
  if (!status.ok()) return context.fail(status);
  report(context, *data, rows);
  return context.succeed();
}

}  // namespace

void add_chain_bench(Command* bench, Context& context, Call* call) {
  Command* verb =
      bench->add_verb("chain", "Measure publish-to-applied over a folder, S3 and a wide-area link");
  verb->set_footer(
      "Examples:\n"
      "  deltawire bench chain                        1 GB of weights; starts its own Ceph RADOS "
      "Gateway\n"
      "  deltawire bench chain --rate 12.5 --delay 120 --folder /dev/shm\n"
      "  deltawire bench chain --no-s3 --params 100M");
  auto options = std::make_shared<ChainBenchArguments>();
  verb->add_option("--params", options->params, "parameters of the simulated model (default 500M)");
  verb->add_option("--density", options->density, "share that the step changes (default 0.012)")
      ->between(0.0, 1.0);
  verb->add_option("--rate", options->rate_megabytes, "of the link, MB/s (default 100)")
      ->positive();
  verb->add_option("--delay", options->round_trip_milliseconds, "round trip, ms (default 50)")
      ->not_negative();
  verb->add_flag("--slow-start", options->slow_start,
                 "connections begin slowly, and again after a pause, as TCP's do");
  verb->add_option("--repeat", options->repeat, "rounds, of which the best counts (default 3)")
      ->between(1U, 100U);
  verb->add_option("--folder", options->folder, "where to work (default: the temporary folder)");
  verb->add_flag("!--no-s3", options->s3, "over a folder only");
  verb->add_flag("!--no-peers", options->peers, "without slime's pipeline and the full copy");
  add_threads(verb, context);
  verb->add_flag("--json", context.json, "print one JSON object on stdout and nothing else there");
  verb->add_flag("-q,--quiet", context.quiet, "print no report and no progress");
  verb->final_callback([&context, call, options] {
    *call = [&context, options] { return chain_bench(context, *options); };
  });
}

}  // namespace deltawire::cli
