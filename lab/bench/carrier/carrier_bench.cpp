#include "lab/bench/carrier_bench.h"

#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <cstring>
#include <thread>

#include "carrier/backend.h"
#include "cli/options.h"
#include "cli/units.h"
#include "lab/bench/machine.h"

namespace deltawire::cli {
namespace {

constexpr double kCallSeconds = 120;
constexpr const char* kBackend = "tcp";

struct CarrierBenchArguments {
  std::vector<uint64_t> ranks = {2, 4, 8};
  uint64_t size_bytes = uint64_t{256} << 20;
  unsigned repeat = 3;
};

using Rank = std::unique_ptr<Carrier>;
using RankBuffers = std::vector<std::vector<uint8_t>>;

// All ranks in this process, a thread each; their bytes go through the system all the same.
Result<std::vector<Rank>> join_group(unsigned size) {
  DW_ASSIGN_OR_RETURN(const auto backend, find_backend(kBackend));
  GroupOptions group;
  group.size = size;
  DW_ASSIGN_OR_RETURN(const auto gathering, backend->open(group, kCallSeconds));
  std::vector<Rank> ranks(size);
  std::vector<Status> failures(size);
  std::vector<std::thread> threads;
  for (unsigned rank = 1; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      auto carrier = backend->enter(gathering->ticket(), rank, group, kCallSeconds);
      failures[rank] = carrier.status();
      if (carrier.ok()) ranks[rank] = std::move(*carrier);
    });
  }
  auto first = gathering->finish(kCallSeconds);
  for (auto& thread : threads) thread.join();
  if (!first.ok()) return std::move(first).status();
  ranks[0] = std::move(*first);
  for (Status& failure : failures) DW_RETURN_IF_ERROR(std::move(failure));
  return ranks;
}

// Every rank has `own` to give and `room` for what it gets, of the same size.
struct Pattern {
  const char* name;
  // What one rank receives in one call, in parts of the size.
  double (*received)(unsigned num_ranks);
  Status (*call)(Carrier& carrier, std::span<uint8_t> own, std::span<uint8_t> room);
};

Status send_on(Carrier& carrier, std::span<uint8_t> own, std::span<uint8_t> room) {
  const unsigned size = carrier.size(), rank = carrier.rank();
  const ToRank to{(rank + 1) % size, own};
  const FromRank from{(rank + size - 1) % size, room};
  return carrier.exchange({&to, 1}, {&from, 1}, kCallSeconds);
}

// Its share to each other rank.
Status all_to_all(Carrier& carrier, std::span<uint8_t> own, std::span<uint8_t> room) {
  std::vector<ToRank> to;
  std::vector<FromRank> from;
  const size_t share = own.size() / carrier.size();
  for (unsigned rank = 0; rank < carrier.size(); ++rank) {
    if (rank == carrier.rank()) continue;
    to.push_back({rank, own.subspan(rank * share, share)});
    from.push_back({rank, room.subspan(rank * share, share)});
  }
  return carrier.exchange(to, from, kCallSeconds);
}

// The root sends to each, without a chain.
Status send_to_each(Carrier& carrier, std::span<uint8_t> own, std::span<uint8_t> room) {
  if (carrier.rank() != 0) {
    const FromRank from{0, room};
    return carrier.exchange({}, {&from, 1}, kCallSeconds);
  }
  std::vector<ToRank> to;
  for (unsigned rank = 1; rank < carrier.size(); ++rank) to.push_back({rank, own});
  return carrier.exchange(to, {}, kCallSeconds);
}

Status broadcast(Carrier& carrier, std::span<uint8_t> own, std::span<uint8_t> room) {
  return carrier.broadcast(0, carrier.rank() == 0 ? own : room, kCallSeconds);
}

double whole(unsigned) { return 1; }
double shares(unsigned ranks) { return double(ranks - 1) / ranks; }

constexpr Pattern kPatterns[] = {{"each to the next", whole, send_on},
                                 {"all to all", shares, all_to_all},
                                 {"root to each", whole, send_to_each},
                                 {"broadcast", whole, broadcast}};

struct CarrierRow {
  unsigned ranks;
  const char* pattern;
  double seconds;
  double cpu_seconds;       // of all ranks together
  double bytes_per_second;  // that one rank receives
};

double process_cpu_seconds() {
  timespec time{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return double(time.tv_sec) + 1e-9 * double(time.tv_nsec);
}

// The time until the last rank has all.
Result<double> measure_once(std::vector<Rank>& ranks, const Pattern& pattern, RankBuffers& own,
                            RankBuffers& room) {
  std::vector<Status> outcomes(ranks.size());
  std::vector<std::thread> threads;
  const double begin = now_seconds();
  for (size_t i = 0; i < ranks.size(); ++i) {
    threads.emplace_back([&, i] { outcomes[i] = pattern.call(*ranks[i], own[i], room[i]); });
  }
  for (auto& thread : threads) thread.join();
  const double seconds = now_seconds() - begin;
  for (Status& outcome : outcomes) DW_RETURN_IF_ERROR(std::move(outcome));
  return seconds;
}

// What one thread copies in a second: a connection copies twice, into the system and out of it.
double copy_rate(RankBuffers& own, RankBuffers& room, unsigned repeat) {
  double best = 0;
  for (unsigned i = 0; i < repeat; ++i) {
    const double begin = now_seconds();
    std::memcpy(room[0].data(), own[0].data(), own[0].size());
    best = std::max(best, double(own[0].size()) / (now_seconds() - begin));
  }
  return best;
}

Status measure_group(const Context& context, const CarrierBenchArguments& options, unsigned size,
                     std::vector<CarrierRow>* rows, double* copied) {
  DW_ASSIGN_OR_RETURN(std::vector<Rank> ranks, join_group(size));
  RankBuffers own(size), room(size);
  for (unsigned rank = 0; rank < size; ++rank) {
    own[rank].assign(size_t(options.size_bytes), uint8_t(rank + 1));
    room[rank].assign(size_t(options.size_bytes), 0);
  }
  *copied = std::max(*copied, copy_rate(own, room, options.repeat));
  for (const Pattern& pattern : kPatterns) {
    const ProgressBar bar(context, fmt::format("{}, {} ranks", pattern.name, size));
    double best = 1e300, least_cpu = 1e300;
    for (unsigned i = 0; i < options.repeat; ++i) {
      const double cpu = process_cpu_seconds();
      DW_ASSIGN_OR_RETURN(const double seconds, measure_once(ranks, pattern, own, room));
      best = std::min(best, seconds);
      least_cpu = std::min(least_cpu, process_cpu_seconds() - cpu);
    }
    const double bytes = pattern.received(size) * double(options.size_bytes);
    rows->push_back({size, pattern.name, best, least_cpu, bytes / best});
  }
  if (room[size - 1].front() != 1 || room[size - 1].back() != 1) {
    return internal_error("the last broadcast did not bring rank 0's bytes");
  }
  return {};
}

int carrier_bench(const Context& context, const CarrierBenchArguments& options) {
  std::vector<CarrierRow> rows;
  double copied = 0;
  for (const uint64_t size : options.ranks) {
    const Status status = measure_group(context, options, unsigned(size), &rows, &copied);
    if (!status.ok()) return context.fail(status);
  }
  const Machine machine = this_machine();
  context.say(fmt::format("{}, {} cores; {} to each rank over {}; one thread copies {}/s",
                          machine.cpu, machine.cores, human_bytes(double(options.size_bytes)),
                          kBackend, human_bytes(copied)));
  context.say(fmt::format("{:>5}  {:<18} {:>10} {:>10} {:>16} {:>16}", "ranks", "", "time", "CPU",
                          "one rank gets", "all ranks get"));
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const CarrierRow& row : rows) {
    // A root gets nothing.
    const bool rooted = row.pattern == kPatterns[2].name || row.pattern == kPatterns[3].name;
    const double all = row.bytes_per_second * (rooted ? row.ranks - 1 : row.ranks);
    context.say(fmt::format("{:>5}  {:<18} {:>10} {:>10} {:>14}/s {:>14}/s", row.ranks, row.pattern,
                            seconds(row.seconds), seconds(row.cpu_seconds),
                            human_bytes(row.bytes_per_second), human_bytes(all)));
    list.push_back({{"ranks", row.ranks},
                    {"what", row.pattern},
                    {"seconds", row.seconds},
                    {"cpu_seconds", row.cpu_seconds},
                    {"bytes_per_second_of_a_rank", row.bytes_per_second},
                    {"bytes_per_second_of_all", all}});
  }
  context.emit({{"cpu", machine.cpu},
                {"cores", machine.cores},
                {"carrier", kBackend},
                {"size_bytes", options.size_bytes},
                {"copy_bytes_per_second", copied},
                {"rows", list}});
  return context.succeed();
}

}  // namespace

void add_carrier_bench(Command* bench, Context& context, Call* call) {
  Command* verb =
      bench->add_verb("carrier", "Measure how fast ranks on this machine give bytes to each other");
  verb->set_footer(
      "Examples:\n"
      "  deltawire bench carrier                        2, 4 and 8 ranks, 256 MiB each\n"
      "  deltawire bench carrier --ranks 2 --size 1GiB");
  auto options = std::make_shared<CarrierBenchArguments>();
  verb->add_option("--ranks", options->ranks, "sizes of groups (default 2 4 8), 2 to 64")
      ->between(2, 64)
      ->type_name("N");
  add_bytes(verb, "--size", &options->size_bytes, "bytes for each rank (default 256MiB)");
  add_whole_number(verb, "--repeat", &options->repeat, "the best of so many, 1 to 1000 (default 3)",
                   1, 1000);
  verb->add_flag("--json", context.json, "print one JSON object on stdout and nothing else there");
  verb->add_flag("-q,--quiet", context.quiet, "print no report and no progress");
  verb->final_callback([&context, call, options] {
    *call = [&context, options] { return carrier_bench(context, *options); };
  });
}

}  // namespace deltawire::cli
