#include "lab/bench/shards_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <thread>

#include "carrier/tcp/socket_carrier.h"
#include "cli/options.h"
#include "cli/table.h"
#include "cli/units.h"
#include "lab/bench/data.h"
#include "lab/bench/machine.h"
#include "lab/bench/measure.h"
#include "lab/simulate/simulation.h"
#include "shard/shard.h"
#include "tensor/text.h"

namespace deltawire::cli {
namespace {

using Json = nlohmann::ordered_json;
using Carriers = std::vector<std::unique_ptr<Carrier>>;

constexpr double kTimeout = 600;
constexpr uint64_t kMostBenchParams = 20'000'000'000, kLeastBenchParams = 100'000;
constexpr uint64_t kBroadcastBytes = uint64_t{64} << 20;
// verl's delta: a position of 32 bits and a value of BF16.
constexpr uint64_t kVerlChangeBytes = 6;

struct ShardsBenchArguments {
  std::string params = "200M", trainer = "fsdp=2", engine = "tp=2";
  double density = 0.012;
  unsigned repeat = 3;
};

// What one rank holds, in memory of its own.
class RankMemory {
 public:
  RankMemory(const ShardLayout& layout, unsigned rank) {
    for (const ShardPiece& piece : layout.ranks[rank]) {
      const ShardTensor& tensor = layout.tensors[piece.tensor];
      memory_.emplace_back(
          tensor_size_bytes(tensor.dtype, box_shape(piece.box, tensor.shape)).value());
      live_.push_back(
          {tensor.name, tensor.dtype, tensor.shape, memory_.back(), Memory::kHost, piece.box});
      numbers_.push_back(piece.tensor);
    }
  }
  const std::vector<LiveTensor>& live() const { return live_; }
  void fill(const std::vector<Bytes>& state) {
    for (size_t i = 0; i < live_.size(); ++i) {
      const LiveTensor& piece = live_[i];
      copy_box_out(piece.box, piece.dtype, piece.shape, state[numbers_[i]], piece.bytes);
    }
  }
  Status check(const std::vector<Bytes>& state) const {
    for (size_t i = 0; i < live_.size(); ++i) {
      const LiveTensor& piece = live_[i];
      std::vector<uint8_t> expected(piece.bytes.size());
      copy_box_out(piece.box, piece.dtype, piece.shape, state[numbers_[i]], expected);
      if (!std::equal(expected.begin(), expected.end(), piece.bytes.begin())) {
        return internal_error("tensor " + quote(piece.name) + " is not what was sent");
      }
    }
    return {};
  }

 private:
  std::vector<std::vector<uint8_t>> memory_;
  std::vector<LiveTensor> live_;
  std::vector<uint32_t> numbers_;
};

// Calls body(i) on a thread each: the time until the last one has ended.
Result<double> timed_ranks(size_t count, const std::function<Status(size_t)>& body) {
  std::vector<Status> outcomes(count);
  std::vector<std::thread> threads;
  const double begin = now_seconds();
  for (size_t i = 0; i < count; ++i) {
    threads.emplace_back([&, i] { outcomes[i] = body(i); });
  }
  for (std::thread& thread : threads) thread.join();
  const double seconds = now_seconds() - begin;
  for (Status& outcome : outcomes) DW_RETURN_IF_ERROR(std::move(outcome));
  return seconds;
}

struct ShardsRow {
  const char* what;
  uint64_t wire_bytes = 0;
  double seconds = 0;
  std::optional<uint64_t> extra_bytes = {};
};

class ShardsBench {
 public:
  // `model` has the forms of data's tensors, in that order.
  ShardsBench(const ShardsBenchArguments& options, const BenchData& data,
              const std::vector<SimulatedTensor>& model)
      : options_(options) {
    std::vector<size_t> order(model.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::sort(order.begin(), order.end(),
              [&](size_t a, size_t b) { return model[a].name < model[b].name; });
    for (const size_t i : order) {
      tensors_.push_back({model[i].name, DType::kBF16, model[i].shape});
      before_.push_back(data.tensors[i].before);
      after_.push_back(data.tensors[i].after);
    }
  }

  Status run() {
    DW_ASSIGN_OR_RETURN(const ShardLayout trainer,
                        ShardLayout::of_spec(options_.trainer, tensors_, ""));
    DW_ASSIGN_OR_RETURN(const ShardLayout engine,
                        ShardLayout::of_spec(options_.engine, tensors_, ""));
    DW_ASSIGN_OR_RETURN(ShardPlan made, plan_shards(trainer, engine));
    DW_RETURN_IF_ERROR(made.check());
    plan = std::make_shared<const ShardPlan>(std::move(made));
    for (unsigned r = 0; r < plan->num_trainers; ++r) ranks_.emplace_back(trainer, r);
    for (unsigned r = 0; r < plan->num_engines; ++r) ranks_.emplace_back(engine, r);
    DW_RETURN_IF_ERROR(make_ends());
    DW_ASSIGN_OR_RETURN(carriers_, make_local_group(unsigned(ranks_.size())));
    // Whole, changes, and back again, as often as is asked for.
    for (unsigned i = 0; i <= options_.repeat; ++i) {
      DW_RETURN_IF_ERROR(check_interrupted());
      DW_RETURN_IF_ERROR(send(i % 2 == 0 ? before_ : after_, i == 0 ? &whole : &delta));
    }
    return broadcast();
  }

  ShardsRow whole{"whole boxes, first version"}, delta{"changes, shard to shard"},
      full{"broadcast of all weights"};
  uint64_t num_changed = 0, snapshot_bytes = 0;  // elements on all edges; the largest rank's
  std::shared_ptr<const ShardPlan> plan;

 private:
  Status make_ends() {
    ShardOptions options;
    options.threads = 1;  // ranks share the machine
    options.timeout_seconds = kTimeout;
    for (unsigned r = 0; r < plan->num_trainers; ++r) {
      DW_ASSIGN_OR_RETURN(ReadShard read, read_live(ranks_[r].live()));
      DW_ASSIGN_OR_RETURN(ShardSender sender, ShardSender::create(plan, r, read, options));
      snapshot_bytes = std::max(snapshot_bytes, sender.snapshot_bytes());
      senders_.push_back(std::move(sender));
    }
    for (unsigned r = 0; r < plan->num_engines; ++r) {
      DW_ASSIGN_OR_RETURN(ReadShard read, read_live(ranks_[plan->num_trainers + r].live()));
      DW_ASSIGN_OR_RETURN(ShardReceiver receiver, ShardReceiver::create(plan, r, read, options));
      receivers_.push_back(std::move(receiver));
    }
    return {};
  }

  Status send(const std::vector<Bytes>& state, ShardsRow* row) {
    for (unsigned r = 0; r < plan->num_trainers; ++r) ranks_[r].fill(state);
    std::vector<ShardReport> reports(ranks_.size());
    MemoryPeak peak;
    peak.reset();
    ++version_;
    const auto call = [&](size_t i) -> Status {
      if (i < senders_.size()) {
        DW_ASSIGN_OR_RETURN(reports[i], senders_[i].send(*carriers_[i], version_));
        return {};
      }
      ShardReceiver& receiver = receivers_[i - senders_.size()];
      DW_ASSIGN_OR_RETURN(reports[i], receiver.receive(*carriers_[i]));
      return receiver.commit(ranks_[i].live());
    };
    DW_ASSIGN_OR_RETURN(const double seconds, timed_ranks(ranks_.size(), call));
    if (!row->extra_bytes) row->extra_bytes = peak.extra_bytes();
    if (row->seconds == 0 || seconds < row->seconds) row->seconds = seconds;
    row->wire_bytes = 0;
    num_changed = 0;
    for (size_t i = 0; i < senders_.size(); ++i) {
      row->wire_bytes += reports[i].sent_bytes;
      num_changed += reports[i].num_changed;
    }
    for (size_t i = senders_.size(); i < ranks_.size(); ++i) {
      DW_RETURN_IF_ERROR(ranks_[i].check(state));
    }
    return {};
  }

  // What trainers do without shards: one rank has all of the model, and all engine ranks get it.
  Status broadcast() {
    std::vector<uint8_t> all(plan->model_bytes);
    std::vector<std::vector<uint8_t>> rooms(plan->num_engines);
    for (auto& room : rooms) room.resize(all.size());
    DW_ASSIGN_OR_RETURN(const Carriers group, make_local_group(1 + plan->num_engines));
    full.wire_bytes = plan->model_bytes * plan->num_engines;
    for (unsigned i = 0; i < options_.repeat; ++i) {
      const auto call = [&](size_t rank) -> Status {
        std::span<uint8_t> own(rank == 0 ? all : rooms[rank - 1]);
        while (!own.empty()) {
          const auto chunk = own.first(std::min<uint64_t>(own.size(), kBroadcastBytes));
          DW_RETURN_IF_ERROR(group[rank]->broadcast(0, chunk, kTimeout));
          own = own.subspan(chunk.size());
        }
        return {};
      };
      DW_ASSIGN_OR_RETURN(const double seconds, timed_ranks(group.size(), call));
      if (full.seconds == 0 || seconds < full.seconds) full.seconds = seconds;
    }
    return {};
  }

  const ShardsBenchArguments& options_;
  std::vector<ShardTensor> tensors_;
  std::vector<Bytes> before_, after_;
  std::vector<RankMemory> ranks_;  // trainers, then engines
  std::vector<ShardSender> senders_;
  std::vector<ShardReceiver> receivers_;
  Carriers carriers_;
  uint64_t version_ = 0;
};

Json row_json(const ShardsRow& row) {
  return {{"what", row.what},
          {"wire_bytes", row.wire_bytes},
          {"seconds", row.seconds},
          {"extra_bytes", row.extra_bytes ? Json(*row.extra_bytes) : Json()}};
}

void report(const Context& context, const ShardsBenchArguments& options, const ShardsBench& bench) {
  const ShardPlan& plan = *bench.plan;
  const uint64_t verl = bench.num_changed * kVerlChangeBytes;
  const double edges = double(std::max<size_t>(1, plan.edges.size()));
  Table table({{"what", false}, {"on the wire"}, {"per edge"}, {"time"}, {"extra memory"}});
  for (const ShardsRow* row : {&bench.whole, &bench.delta, &bench.full}) {
    const double wires = row == &bench.full ? plan.num_engines : edges;
    table.add({row->what, human_bytes(double(row->wire_bytes)),
               human_bytes(double(row->wire_bytes) / wires), seconds(row->seconds),
               row->extra_bytes ? human_bytes(double(*row->extra_bytes)) : "-"});
  }
  table.add({"32-bit positions, as verl", human_bytes(double(verl)),
             human_bytes(double(verl) / edges), "-", "-"});
  table.say(context);
  context.say(fmt::format(
      "{} -> {}: {}, {} elements changed ({:.2f} B each); a sender's snapshot is up to {}",
      options.trainer, options.engine, plural(plan.edges.size(), "edge"),
      human_count(bench.num_changed),
      double(bench.delta.wire_bytes) / double(std::max<uint64_t>(1, bench.num_changed)),
      human_bytes(double(bench.snapshot_bytes))));
  Json rows = Json::array();
  for (const ShardsRow* row : {&bench.whole, &bench.delta, &bench.full}) {
    rows.push_back(row_json(*row));
  }
  context.emit({{"trainer", options.trainer},
                {"engine", options.engine},
                {"model_bytes", plan.model_bytes},
                {"edges", plan.edges.size()},
                {"num_changed", bench.num_changed},
                {"int32_positions_bytes", verl},
                {"snapshot_bytes", bench.snapshot_bytes},
                {"rows", std::move(rows)}});
}

int run_shards_bench(const Context& context, const ShardsBenchArguments& options) {
  const Result<uint64_t> params = parse_count(options.params);
  if (!params.ok() || *params < kLeastBenchParams || *params > kMostBenchParams) {
    return context.fail(invalid_argument("--params: expected a count from 100k to 20B, got " +
                                         quote(options.params)));
  }
  ThreadPool pool(0);
  Result<BenchData> data = [&] {
    ProgressBar bar(context, "simulate");
    return simulate_bench_data(*params, options.density, 1, &pool, bar.callback());
  }();
  if (!data.ok()) return context.fail(data.status());
  ShardsBench bench(options, *data, simulated_model(*params));
  if (const Status status = bench.run(); !status.ok()) return context.fail(status);
  report(context, options, bench);
  return context.succeed();
}

}  // namespace

void add_shards_bench(Command* bench, Context& context, Call* call) {
  Command* verb = make_verb(
      *bench, context, "shards",
      "Send versions from trainer ranks to engine ranks, against a broadcast of all weights",
      "  deltawire bench shards                                400 MB, fsdp=2 to tp=2\n"
      "  deltawire bench shards --trainer fsdp=4 --engine tp=2 --params 1B\n\n"
      "All ranks are threads of this process, joined by sockets; each has one thread to code "
      "with.");
  auto options = std::make_shared<ShardsBenchArguments>();
  verb->add_option("--params", options->params, "of the simulated model (default 200M)")
      ->type_name("N");
  verb->add_option("--trainer", options->trainer, "layout of the trainer (default fsdp=2)")
      ->type_name("WORDS");
  verb->add_option("--engine", options->engine, "layout of the engine (default tp=2)")
      ->type_name("WORDS");
  add_share(verb, "--density", &options->density,
            "share of the elements that a version changes (default 0.012)", 0, 0.5);
  add_whole_number(verb, "--repeat", &options->repeat, "the best of so many (default 3)", 1, 1000);
  verb->callback([&context, call, options] {
    *call = [&context, options] { return run_shards_bench(context, *options); };
  });
}

}  // namespace deltawire::cli
