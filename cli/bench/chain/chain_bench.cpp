#include "cli/bench/chain/chain_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <optional>

#include "base/thread_pool.h"
#include "cli/bench/chain/wan_link.h"
#include "cli/bench/data.h"
#include "cli/bench/pipeline.h"
#include "cli/demo/gateway.h"
#include "cli/units.h"
#include "codec/guard.h"
#include "deltawire/publisher.h"
#include "deltawire/replica.h"

namespace deltawire::cli {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

struct Options {
  std::string params = "500M";
  double density = 0.012;
  double rate_megabytes = 100, round_trip_milliseconds = 50;
  std::string folder;  // to work in
  bool s3 = true;
  bool peers = true;
};

// Where a chain lives in one part of the bench.
struct Place {
  std::string name, url;
  StoreOptions store;
  const WanLink* wan = nullptr;
};

struct Row {
  std::string place, what;
  uint64_t bytes = 0;
  double publish = 0, apply = 0;
  std::optional<double> goal;  // 1.2 * (bytes / rate + 4 round trips)
  std::vector<Phase> publish_phases, pull_phases;
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
  ChainBench(const Context& context, const Options& options, const BenchData& data, fs::path folder)
      : context_(context),
        options_(options),
        data_(data),
        folder_(std::move(folder)),
        pool_(context.threads) {}

  Status run(const Place& place) {
    DW_RETURN_IF_ERROR(run_deltawire(place).at(place.name));
    if (!options_.peers) return {};
    DW_RETURN_IF_ERROR(run_slime(place).at(place.name));
    return run_full(place).at(place.name);
  }

  const std::vector<Row>& rows() const { return rows_; }

 private:
  void add(const Place& place, Row row) {
    row.place = place.name;
    if (place.wan != nullptr) {
      row.goal = 1.2 * (double(row.bytes) / (options_.rate_megabytes * 1e6) +
                        4 * options_.round_trip_milliseconds / 1e3);
    }
    rows_.push_back(std::move(row));
  }

  Status run_deltawire(const Place& place) {
    ProgressBar bar(context_, place.name);
    DW_ASSIGN_OR_RETURN(std::shared_ptr<Store> store,
                        open_store(place.url + "/deltawire", place.store));
    PublishOptions publish;
    publish.threads = context_.threads;
    DW_ASSIGN_OR_RETURN(Publisher publisher, Publisher::open(store, {}, publish));
    DW_RETURN_IF_ERROR(publisher.publish(tensors_of(data_, false)).status());
    ReplicaOptions options;
    options.threads = context_.threads;
    const fs::path local = folder_ / ("replica-" + std::to_string(rows_.size()));
    DW_ASSIGN_OR_RETURN(Replica replica, Replica::open(store, local, options));
    DW_RETURN_IF_ERROR(replica.pull().status());

    const double start = now_seconds();
    DW_ASSIGN_OR_RETURN(const PublishReport sent, publisher.publish(tensors_of(data_, true)));
    const double published = now_seconds();
    DW_ASSIGN_OR_RETURN(const PullReport got, replica.pull());
    Row row{{}, "deltawire", sent.bytes, published - start, now_seconds() - published,
            {}, sent.phases, got.phases};
    if (got.version != sent.version) return internal_error("the replica is not at the new version");
    add(place, std::move(row));
    std::error_code ignored;
    fs::remove_all(local, ignored);
    return {};
  }

  // Its receiver patches tensors in memory here; the real one also writes a checkpoint.
  Status run_slime(const Place& place) {
    const Pipelines peers = peer_pipelines();
    const auto slime = std::find_if(peers.begin(), peers.end(), [](const auto& pipeline) {
      return pipeline->name() == kSlimeName;
    });
    DW_ASSIGN_OR_RETURN(std::shared_ptr<Store> store,
                        open_store(place.url + "/slime", place.store));
    std::vector<Scratch> scratch(pool_.num_workers());
    reset_work(data_, &pool_);
    const size_t count = data_.tensors.size();
    std::vector<Wire> wires(count);

    const double start = now_seconds();
    DW_RETURN_IF_ERROR(parallel_try(&pool_, count, [&](size_t i, unsigned worker) {
      return (*slime)->publish(data_.tensors[i], {nullptr, &scratch[worker]}, &wires[i]);
    }));
    std::vector<uint8_t> object;
    for (const Wire& wire : wires) {
      object.insert(object.end(), wire.payload.begin(), wire.payload.end());
    }
    DW_RETURN_IF_ERROR(store->put("delta", MemoryBody(Bytes(object))));
    const double published = now_seconds();
    MemorySink sink(object.size());
    DW_RETURN_IF_ERROR(store->download("delta", object.size(), &sink));
    size_t at = 0;
    for (Wire& wire : wires) {
      const Bytes payload = sink.bytes().subspan(at, wire.payload.size());
      std::copy(payload.begin(), payload.end(), wire.payload.begin());
      at += wire.payload.size();
    }
    DW_RETURN_IF_ERROR(parallel_try(&pool_, count, [&](size_t i, unsigned worker) -> Status {
      if (!wires[i].changed) return {};
      return (*slime)->apply(data_.tensors[i], wires[i], {nullptr, &scratch[worker]});
    }));
    const double applied = now_seconds();
    add(place, {{},
                "slime's pipeline",
                object.size(),
                published - start,
                applied - published,
                {},
                {},
                {}});
    return check_work(data_, kSlimeName, &pool_);
  }

  Status run_full(const Place& place) {
    DW_ASSIGN_OR_RETURN(std::shared_ptr<Store> store, open_store(place.url + "/full", place.store));
    const Bytes all(data_.after.data(), data_.weights_bytes);
    const double start = now_seconds();
    DW_RETURN_IF_ERROR(store->put("checkpoint", MemoryBody(all)));
    const double published = now_seconds();
    MemorySink sink(all.size());
    DW_RETURN_IF_ERROR(store->download("checkpoint", all.size(), &sink));
    add(place,
        {{}, "full copy", all.size(), published - start, now_seconds() - published, {}, {}, {}});
    return store->remove("checkpoint");
  }

  const Context& context_;
  const Options& options_;
  const BenchData& data_;
  const fs::path folder_;
  ThreadPool pool_;
  std::vector<Row> rows_;
};

// One line per phase on a common time axis.
void say_timeline(const Context& context, const std::string& title,
                  const std::vector<Phase>& phases) {
  double end = 0;
  for (const Phase& phase : phases) end = std::max(end, phase.end);
  if (end == 0) return;
  constexpr int kWidth = 50;
  context.say(title);
  for (const Phase& phase : phases) {
    const int from = int(phase.begin / end * kWidth);
    const int to = std::max(from + 1, int(phase.end / end * kWidth));
    context.say(fmt::format("  {:<16} {:{}}{:#<{}}{:{}} {:.3f} ... {:.3f} s", phase.name, "", from,
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

void report(const Context& context, const BenchData& data, const std::vector<Row>& rows) {
  context.say(fmt::format("data      {}: {} of weights, {} changed", data.source,
                          human_bytes(double(data.weights_bytes)), percent(data.density())));
  context.say("");
  context.say(fmt::format("{:<26} {:<18} {:>10} {:>10} {:>10} {:>10}  {}", "over", "how", "bytes",
                          "publish", "apply", "together", "goal"));
  Json list = Json::array();
  for (const Row& row : rows) {
    const double together = row.publish + row.apply;
    context.say(fmt::format("{:<26} {:<18} {:>10} {:>10} {:>10} {:>10}  {}", row.place, row.what,
                            human_bytes(double(row.bytes)), seconds(row.publish),
                            seconds(row.apply), seconds(together),
                            row.goal ? seconds(*row.goal) : ""));
    list.push_back({{"over", row.place},
                    {"how", row.what},
                    {"bytes", row.bytes},
                    {"publish_seconds", row.publish},
                    {"apply_seconds", row.apply},
                    {"goal_seconds", row.goal ? Json(*row.goal) : Json()},
                    {"publish_phases", phases_json(row.publish_phases)},
                    {"pull_phases", phases_json(row.pull_phases)}});
  }
  context.say("");
  for (const Row& row : rows) {
    say_timeline(context, "publish, " + row.place, row.publish_phases);
    say_timeline(context, "pull, " + row.place, row.pull_phases);
  }
  context.emit(
      {{"weights_bytes", data.weights_bytes}, {"density", data.density()}, {"rows", list}});
}

Status run_places(const Context& context, const Options& options, const BenchData& data,
                  const fs::path& folder, std::vector<Row>* rows) {
  ChainBench bench(context, options, data, folder);
  DW_RETURN_IF_ERROR(bench.run({"a folder", (folder / "store").string(), {}, nullptr}));
  if (options.s3) {
    DW_ASSIGN_OR_RETURN(const Gateway gateway, Gateway::start(folder / "rgw"));
    Place place{"RADOS Gateway", "s3://" + gateway.bucket() + "/near", {}, nullptr};
    place.store.endpoint = gateway.endpoint();
    DW_RETURN_IF_ERROR(bench.run(place));
    const std::string target = gateway.endpoint().substr(gateway.endpoint().rfind('/') + 1);
    DW_ASSIGN_OR_RETURN(const WanLink link, WanLink::start(target, options.rate_megabytes * 1e6,
                                                           options.round_trip_milliseconds / 1e3));
    Place far{
        fmt::format("{:g} MB/s, {:g} ms", options.rate_megabytes, options.round_trip_milliseconds),
        "s3://" + gateway.bucket() + "/far",
        {},
        &link};
    far.store.endpoint = "http://127.0.0.1:" + std::to_string(link.port());
    DW_RETURN_IF_ERROR(bench.run(far));
  }
  *rows = bench.rows();
  return {};
}

int chain_bench(const Context& context, const Options& options) {
  const Result<uint64_t> params = parse_count(options.params);
  if (!params.ok()) return context.fail(params.status());
  const std::string parent =
      options.folder.empty() ? fs::temp_directory_path().string() : options.folder;
  std::string folder = parent + "/deltawire-bench.XXXXXX";
  if (::mkdtemp(folder.data()) == nullptr) {
    return context.fail(io_error(folder + ": cannot make a folder"));
  }
  ThreadPool pool(context.threads);
  std::vector<Row> rows;
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

void add_chain_bench(CLI::App* bench, Context& context, Run* run) {
  CLI::App* verb = bench->add_subcommand(
      "chain", "Measure publish-to-applied over a folder, S3 and a wide-area link");
  verb->footer(
      "Examples:\n"
      "  deltawire bench chain                        1 GB of weights; starts its own Ceph RADOS "
      "Gateway\n"
      "  deltawire bench chain --rate 12.5 --delay 120 --folder /dev/shm\n"
      "  deltawire bench chain --no-s3 --params 100M");
  auto options = std::make_shared<Options>();
  verb->add_option("--params", options->params, "parameters of the simulated model (default 500M)");
  verb->add_option("--density", options->density, "share that the step changes (default 0.012)")
      ->check(CLI::Range(0.0, 1.0));
  verb->add_option("--rate", options->rate_megabytes, "of the link, MB/s (default 100)")
      ->check(CLI::PositiveNumber);
  verb->add_option("--delay", options->round_trip_milliseconds, "round trip, ms (default 50)")
      ->check(CLI::NonNegativeNumber);
  verb->add_option("--folder", options->folder, "where to work (default: the temporary folder)");
  verb->add_flag("!--no-s3", options->s3, "over a folder only");
  verb->add_flag("!--no-peers", options->peers, "without slime's pipeline and the full copy");
  add_threads(verb, context);
  verb->add_flag("--json", context.json, "print one JSON object on stdout and nothing else there");
  verb->add_flag("-q,--quiet", context.quiet, "print no report and no progress");
  verb->final_callback([&context, run, options] {
    *run = [&context, options] { return chain_bench(context, *options); };
  });
}

}  // namespace deltawire::cli
