// One rank of a test over MPI: mpirun -n N mpi_ranks SCENARIO. Ends with 0 when all is as it should
// be; says what is not on stderr. mpi_test.py knows the scenarios and what each must lead to.
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <random>
#include <thread>

#include "carrier/backend.h"
#include "deltawire/carrier_mpi.h"

namespace deltawire {
namespace {

#define REQUIRE(condition, ...)                                         \
  do {                                                                  \
    if (!(condition)) {                                                 \
      std::fprintf(stderr, "ranks.cpp:%d: %s: ", __LINE__, #condition); \
      std::fprintf(stderr, __VA_ARGS__);                                \
      std::fputc('\n', stderr);                                         \
      std::_Exit(1);                                                    \
    }                                                                   \
  } while (false)

void require_ok(const Status& status) { REQUIRE(status.ok(), "%s", status.to_string().c_str()); }

using Bytes = std::vector<uint8_t>;

Bytes random_bytes(uint64_t seed, size_t size) {
  std::mt19937_64 random(seed);
  Bytes bytes(size);
  for (uint8_t& byte : bytes) byte = uint8_t(random());
  return bytes;
}

std::unique_ptr<Carrier> make(MpiOptions options = {}) {
  auto carrier = make_mpi_carrier(options);
  require_ok(carrier.status());
  return std::move(*carrier);
}

// What rank `from` sends rank `to` in a round: everybody can tell. Some get nothing.
std::vector<Bytes> messages(unsigned round, unsigned from, unsigned to) {
  std::mt19937_64 random(round * 10007 + from * 101 + to);
  const size_t sizes[] = {0, 1, 7, 1000, 65'536, 65'537, 300'000, 1'500'000};
  std::vector<Bytes> list(random() % 4);
  for (Bytes& bytes : list) bytes = random_bytes(random(), sizes[random() % 8]);
  return list;
}

int exchanges() {
  const auto carrier = make({.bucket_bytes = 1 << 20});  // many slices
  const unsigned rank = carrier->rank();
  for (unsigned round = 0; round < 20; ++round) {
    std::vector<std::vector<Bytes>> sent(carrier->size()), expected(carrier->size()),
        received(carrier->size());
    std::vector<ToRank> to;
    std::vector<FromRank> from;
    for (unsigned peer = 0; peer < carrier->size(); ++peer) {
      sent[peer] = messages(round, rank, peer);
      expected[peer] = messages(round, peer, rank);
      for (const Bytes& bytes : sent[peer]) to.push_back({peer, bytes});
      for (const Bytes& bytes : expected[peer]) received[peer].emplace_back(bytes.size());
      for (Bytes& bytes : received[peer]) from.push_back({peer, bytes});
    }
    require_ok(carrier->exchange(to, from, 60));
    REQUIRE(received == expected, "rank %u, round %u", rank, round);
  }
  REQUIRE(carrier->lost().empty(), "nobody is lost");
  return 0;
}

int broadcasts() {
  const auto carrier = make({.bucket_bytes = 1 << 20});
  for (unsigned root = 0; root < carrier->size(); ++root) {
    for (const size_t size : {size_t{0}, size_t{1}, size_t{524'288}, size_t{5'000'001}}) {
      const Bytes expected = random_bytes(root + size, size);
      Bytes bytes = carrier->rank() == root ? expected : Bytes(size);
      require_ok(carrier->broadcast(root, bytes, 60));
      REQUIRE(bytes == expected, "root %u, %zu bytes", root, size);
    }
  }
  return 0;
}

// Groups come and go in one process.
int groups() {
  for (int i = 0; i < 3; ++i) {
    const auto first = make(), second = make();
    uint8_t one = first->rank() == 0 ? 1 : 0, two = second->rank() == 0 ? 2 : 0;
    require_ok(second->broadcast(0, {&two, 1}, 60));
    require_ok(first->broadcast(0, {&one, 1}, 60));
    REQUIRE(one == 1 && two == 2, "%d and %d", one, two);
  }
  return 0;
}

int wrong_size() {
  const auto carrier = make_mpi_carrier({.size = 7});
  REQUIRE(!carrier.ok() && carrier.status().code() == Code::kInvalidArgument, "7 ranks");
  std::fprintf(stderr, "%s\n", carrier.status().message().c_str());
  const auto same = make();
  Bytes byte(1);
  const ToRank to{same->size(), byte};
  REQUIRE(same->exchange({&to, 1}, {}, 1).code() == Code::kInvalidArgument, "no such rank");
  REQUIRE(same->broadcast(same->size(), byte, 1).code() == Code::kInvalidArgument, "no such rank");
  require_ok(same->broadcast(0, byte, 60));  // refusals cost nothing
  return 0;
}

// Everybody but `without` sends to and receives from everybody else, much enough that it cannot be
// done at once.
Status all_to_all(Carrier& carrier, double timeout_seconds, unsigned without = 1000) {
  const size_t size = 3'000'000;
  std::vector<Bytes> in(carrier.size(), Bytes(size));
  const Bytes out(size, uint8_t(carrier.rank()));
  std::vector<ToRank> to;
  std::vector<FromRank> from;
  for (unsigned peer = 0; peer < carrier.size(); ++peer) {
    if (peer == without) continue;
    to.push_back({peer, out});
    from.push_back({peer, in[peer]});
  }
  DW_RETURN_IF_ERROR(carrier.exchange(to, from, timeout_seconds));
  for (unsigned peer = 0; peer < carrier.size(); ++peer) {
    REQUIRE(peer == without || in[peer] == Bytes(size, uint8_t(peer)), "bytes of rank %u", peer);
  }
  return {};
}

// Rank 1 does not come to the second call. Nobody waits for ever, and all name it.
void expect_rank_1_lost(Carrier& carrier) {
  const Status status = all_to_all(carrier, 6);
  REQUIRE(status.code() == Code::kUnavailable, "%s", status.to_string().c_str());
  std::fprintf(stderr, "%s\n", status.message().c_str());
  REQUIRE(carrier.lost() == std::vector<unsigned>{1}, "%zu lost", carrier.lost().size());
  REQUIRE(status.message().find("waiting for rank 1") != std::string::npos, "it is named");
  // The others go on. What needs rank 1 is quick to fail.
  require_ok(all_to_all(carrier, 60, 1));
  require_ok(all_to_all(carrier, 60, 1));
  Bytes byte(1);
  const FromRank gone{1, byte};
  REQUIRE(carrier.exchange({}, {&gone, 1}, 1e6).code() == Code::kUnavailable, "it is lost");
  REQUIRE(carrier.broadcast(0, byte, 1e6).code() == Code::kUnavailable, "it is lost");
}

int hung() {
  auto carrier = make();
  require_ok(all_to_all(*carrier, 60));
  if (carrier->rank() == 1) {
    ::sleep(10);
  } else {
    expect_rank_1_lost(*carrier);
  }
  std::fprintf(stderr, "rank %u ends\n", carrier->rank());
  carrier.reset();
  return 0;
}

// A broadcast whose root never comes ends too.
int hung_root() {
  auto carrier = make();
  if (carrier->rank() == 0) {
    ::sleep(3);
    std::_Exit(0);
  }
  Bytes bytes(3'000'000);
  const Status status = carrier->broadcast(0, bytes, 1);
  REQUIRE(status.code() == Code::kUnavailable, "%s", status.to_string().c_str());
  std::fprintf(stderr, "%s\n", status.message().c_str());
  return 0;
}

int killed() {
  auto carrier = make();
  require_ok(all_to_all(*carrier, 60));
  if (carrier->rank() == 1) ::raise(SIGKILL);
  expect_rank_1_lost(*carrier);
  std::fprintf(stderr, "rank %u survives\n", carrier->rank());
  carrier.reset();
  return 0;
}

int late_to_the_group() {
  // The others do not make a group at all; rank 0 must not wait for them for ever.
  MpiOptions options{.timeout_seconds = 1};
  if (std::getenv("OMPI_COMM_WORLD_RANK") &&
      std::strcmp(std::getenv("OMPI_COMM_WORLD_RANK"), "0")) {
    options.size = 99;  // begins MPI, and refuses before it waits for anyone
    REQUIRE(!make_mpi_carrier(options).ok(), "99 ranks");
    ::sleep(3);
    std::_Exit(0);
  }
  const auto carrier = make_mpi_carrier(options);
  REQUIRE(carrier.status().code() == Code::kUnavailable, "%s",
          carrier.status().to_string().c_str());
  std::fprintf(stderr, "%s\n", carrier.status().message().c_str());
  return 0;
}

// A text of process 0 for all.
std::string told(Carrier& job, std::string text) {
  text.resize(100, ' ');
  require_ok(job.broadcast(0, {reinterpret_cast<uint8_t*>(text.data()), text.size()}, 60));
  return text.substr(0, text.find(' '));
}

// Groups by ticket, of all processes and of all but process 1; the order is not that of the job.
int by_ticket() {
  const auto job = make();
  require_ok(add_mpi_backend());
  const auto backend = find_backend("mpi");
  require_ok(backend.status());
  const unsigned process = job->rank();
  for (const unsigned without : {1000U, 1U, 1000U}) {
    std::vector<unsigned> processes = {0};
    for (unsigned i = job->size() - 1; i > 0; --i) {
      if (i != without) processes.push_back(i);
    }
    const GroupOptions options{.size = unsigned(processes.size())};
    std::unique_ptr<Gathering> gathering;
    std::unique_ptr<Carrier> group;
    if (process == 0) {
      auto opened = (*backend)->open(options, 60);
      require_ok(opened.status());
      gathering = std::move(*opened);
    }
    const std::string ticket = told(*job, gathering ? gathering->ticket() : "");
    if (process == without) continue;
    const auto rank =
        unsigned(std::find(processes.begin(), processes.end(), process) - processes.begin());
    auto made = process == 0 ? gathering->finish(60) : (*backend)->enter(ticket, rank, options, 60);
    require_ok(made.status());
    group = std::move(*made);
    REQUIRE(group->rank() == rank && group->size() == options.size, "as it was asked for");
    require_ok(all_to_all(*group, 60));
    const Bytes expected = random_bytes(without, 1'000'000);
    const unsigned root = options.size - 1;
    Bytes bytes = rank == root ? expected : Bytes(expected.size());
    require_ok(group->broadcast(root, bytes, 60));
    REQUIRE(bytes == expected, "broadcast");
  }
  REQUIRE(!(*backend)->enter("0", 1, {.size = 2}, 1).ok(), "no ticket");
  REQUIRE(!(*backend)->enter("99:3", 1, {.size = 2}, 1).ok(), "no ticket");
  REQUIRE(!(*backend)->open({.size = 99}, 1).ok(), "too many");
  return 0;
}

// One that does not enter is named, and those that did enter do not wait for ever.
int missing_member() {
  const auto job = make();
  require_ok(add_mpi_backend());
  const auto backend = find_backend("mpi");
  const GroupOptions options{.size = job->size()};
  std::unique_ptr<Gathering> gathering;
  if (job->rank() == 0) gathering = (*backend)->open(options, 60).value();
  const std::string ticket = told(*job, gathering ? gathering->ticket() : "");
  if (job->rank() == 1) {
    ::sleep(6);
    std::_Exit(0);
  }
  const auto made =
      job->rank() == 0 ? gathering->finish(4) : (*backend)->enter(ticket, job->rank(), options, 4);
  REQUIRE(made.status().code() == Code::kUnavailable, "%s", made.status().to_string().c_str());
  std::fprintf(stderr, "%s\n", made.status().message().c_str());
  return 0;
}

int mismatch() {
  auto carrier = make();
  Bytes bytes(carrier->rank() == 0 ? 100 : 200);
  Status status;
  if (carrier->rank() == 0) {
    const ToRank to{1, bytes};
    status = carrier->exchange({&to, 1}, {}, 60);
  } else {
    const FromRank from{0, bytes};
    status = carrier->exchange({}, {&from, 1}, 60);
    REQUIRE(status.code() == Code::kCorruption, "%s", status.to_string().c_str());
    std::fprintf(stderr, "%s\n", status.message().c_str());
  }
  return 0;
}

int aborts() {
  auto carrier = make();
  if (carrier->rank() != 0) {
    ::sleep(2);
    std::_Exit(0);
  }
  std::thread other([&] {
    ::usleep(300'000);
    carrier->abort();
  });
  const Status status = all_to_all(*carrier, 1e6);
  other.join();
  REQUIRE(status.code() == Code::kCancelled, "%s", status.to_string().c_str());
  return 0;
}

}  // namespace
}  // namespace deltawire

int main(int argc, char** argv) {
  using namespace deltawire;
  const std::map<std::string, std::function<int()>> scenarios = {
      {"exchanges", exchanges},
      {"broadcasts", broadcasts},
      {"groups", groups},
      {"wrong_size", wrong_size},
      {"hung", hung},
      {"hung_root", hung_root},
      {"killed", killed},
      {"mismatch", mismatch},
      {"late_to_the_group", late_to_the_group},
      {"aborts", aborts},
      {"by_ticket", by_ticket},
      {"missing_member", missing_member},
  };
  const auto scenario = scenarios.find(argc > 1 ? argv[1] : "");
  if (scenario == scenarios.end()) {
    std::fprintf(stderr, "no such scenario\n");
    return 2;
  }
  return scenario->second();
}
