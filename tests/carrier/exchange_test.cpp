// Exchanges and broadcasts among threads and processes. Ranks that die, hang, come late or want
// something else: an error names them, the others go on.
#include "carrier/backend.h"
#include "carrier/tcp/socket_carrier.h"
#include "processes.h"
#include "test_files.h"

namespace deltawire::testing {
namespace {

using Group = std::vector<std::unique_ptr<Carrier>>;
using Buffer = std::vector<uint8_t>;

// What rank `from` sends to `to` in round `round`: both ends can make it.
Buffer computed_bytes(size_t size, uint64_t seed) {
  Buffer bytes(size);
  std::mt19937_64 random(seed);
  for (size_t i = 0; i < size; i += 4096) bytes[i] = uint8_t(random());
  if (size > 0) bytes.back() = uint8_t(random());
  return bytes;
}

// Calls body(carrier) in a thread for each rank that is there.
template <class Body>
void on_all_ranks(Group& group, const Body& body) {
  in_threads(unsigned(group.size()), [&](unsigned rank) {
    if (group[rank]) body(*group[rank]);
  });
}

// Sizes of every span from every rank to every other: the same on all ranks.
struct Round {
  std::vector<std::vector<std::vector<size_t>>> sizes;  // [from][to][span]
  uint64_t seed;
};

Round random_round(unsigned size, std::mt19937_64& random) {
  Round round{{}, random()};
  round.sizes.assign(size, std::vector<std::vector<size_t>>(size));
  for (unsigned from = 0; from < size; ++from) {
    for (unsigned to = 0; to < size; ++to) {
      if (from == to) continue;
      for (uint64_t n = random() % 4; n > 0; --n) {
        const size_t bits = random() % 22;
        round.sizes[from][to].push_back(bits == 0 ? 0 : random() % (size_t{1} << bits));
      }
    }
  }
  if (random() % 4 == 0) round.sizes[0][1].push_back(24 << 20);
  return round;
}

uint64_t span_seed(const Round& round, unsigned from, unsigned to, size_t span) {
  return round.seed + from * 1000003 + to * 1009 + span;
}

void play(Carrier& carrier, const Round& round) {
  std::vector<Buffer> sent, room, expected;
  std::vector<ToRank> to;
  std::vector<FromRank> from;
  const unsigned own = carrier.rank();
  for (unsigned other = 0; other < carrier.size(); ++other) {
    const auto& out = round.sizes[own][other];
    for (size_t i = 0; i < out.size(); ++i) {
      sent.push_back(computed_bytes(out[i], span_seed(round, own, other, i)));
      to.push_back({other, sent.back()});
    }
    const auto& in = round.sizes[other][own];
    for (size_t i = 0; i < in.size(); ++i) {
      expected.push_back(computed_bytes(in[i], span_seed(round, other, own, i)));
      room.emplace_back(in[i]);
      from.push_back({other, room.back()});
    }
  }
  must(carrier.exchange(to, from, 60));
  for (size_t i = 0; i < room.size(); ++i) ASSERT_TRUE(room[i] == expected[i]);
}

TEST(Exchange, AnySizesAmongAnyRanks) {
  std::mt19937_64 random(7);
  for (unsigned size = 1; size <= 8; ++size) {
    Group group = make_local_group(size).value();
    std::vector<Round> rounds;
    for (int i = 0; i < 6 && size > 1; ++i) rounds.push_back(random_round(size, random));
    on_all_ranks(group, [&](Carrier& carrier) {
      for (const Round& round : rounds) play(carrier, round);
    });
  }
}

TEST(Exchange, BroadcastsFromEveryRoot) {
  for (unsigned size = 1; size <= 8; ++size) {
    Group group = make_local_group(size).value();
    on_all_ranks(group, [&](Carrier& carrier) {
      for (const size_t bytes :
           {size_t{0}, size_t{1}, size_t{1000}, size_t{300000}, size_t{5} << 20}) {
        for (unsigned root = 0; root < size; ++root) {
          const Buffer expected = computed_bytes(bytes, bytes + root);
          Buffer own = carrier.rank() == root ? expected : Buffer(bytes);
          must(carrier.broadcast(root, own, 60));
          ASSERT_TRUE(own == expected);
        }
      }
    });
  }
}

using Ranks = std::vector<unsigned>;
constexpr double kPatient = 60;

TEST(Failures, SizesThatDifferAreNamed) {
  auto group = make_local_group(2).value();
  std::vector<uint8_t> ten(10), twelve(12);
  std::thread other([&] {
    const ToRank to{0, ten};
    EXPECT_TRUE(group[1]->exchange({&to, 1}, {}, kPatient).ok());
  });
  const FromRank from{1, twelve};
  const Status status = group[0]->exchange({}, {&from, 1}, kPatient);
  other.join();
  EXPECT_FAILS(status, kCorruption, "rank 1 sends 10 bytes where 12 are expected");
}

TEST(Failures, RanksThatAreNone) {
  auto group = make_local_group(2).value();
  std::vector<uint8_t> bytes(10);
  const ToRank too_far{2, bytes}, itself{0, bytes};
  EXPECT_FAILS(group[0]->exchange({&too_far, 1}, {}, 1), kInvalidArgument);
  EXPECT_FAILS(group[0]->exchange({&itself, 1}, {}, 1), kInvalidArgument);
  EXPECT_FAILS(group[0]->broadcast(2, bytes, 1), kInvalidArgument);
}

// Rank `gone` is not there; the others exchange with all.
void exchange_with_all(Carrier& carrier, unsigned gone, double timeout_seconds) {
  std::vector<std::vector<uint8_t>> room(carrier.size(), std::vector<uint8_t>(1 << 20));
  const std::vector<uint8_t> own(1 << 20, uint8_t(carrier.rank() + 1));
  std::vector<ToRank> to;
  std::vector<FromRank> from;
  for (unsigned rank = 0; rank < carrier.size(); ++rank) {
    if (rank == carrier.rank()) continue;
    to.push_back({rank, own});
    from.push_back({rank, room[rank]});
  }
  EXPECT_FAILS(carrier.exchange(to, from, timeout_seconds), kUnavailable,
               "rank " + std::to_string(gone));
  EXPECT_EQ(carrier.lost(), Ranks{gone});
  for (unsigned rank = 0; rank < carrier.size(); ++rank) {
    if (rank == carrier.rank() || rank == gone) continue;
    EXPECT_EQ(room[rank], std::vector<uint8_t>(1 << 20, uint8_t(rank + 1)));
  }
}

TEST(Failures, AGoneRankKeepsNobodyFromTheOthersBytes) {
  auto group = make_local_group(5).value();
  group[2].reset();
  on_all_ranks(group, [](Carrier& carrier) {
    exchange_with_all(carrier, 2, kPatient);
    exchange_with_all(carrier, 2, kPatient);  // it goes on to work among the rest
    std::vector<uint8_t> bytes(100);
    EXPECT_FAILS(carrier.broadcast(0, bytes, kPatient), kUnavailable);
  });
}

TEST(Failures, ALateRankIsLostAlone) {
  auto group = make_local_group(3).value();
  auto late = std::move(group[1]);
  on_all_ranks(group, [](Carrier& carrier) { exchange_with_all(carrier, 1, 5); });
  EXPECT_TRUE(late->lost().empty());
  std::vector<uint8_t> bytes(10);
  const FromRank from{0, bytes};
  const Status status = late->exchange({}, {&from, 1}, kPatient);  // what came before its end
  EXPECT_FALSE(status.ok());
}

TEST(Failures, AChainNamesTheRankThatBrokeIt) {
  auto group = make_local_group(6).value();
  group[2].reset();
  on_all_ranks(group, [](Carrier& carrier) {
    std::vector<uint8_t> bytes(8 << 20);
    const Status status = carrier.broadcast(0, bytes, kPatient);
    if (carrier.rank() == 0) return;  // rank 1 may have taken all from it
    EXPECT_FAILS(status, kUnavailable, "rank 2");
    EXPECT_EQ(carrier.lost(), Ranks{2}) << carrier.rank();
  });
}

TEST(Failures, AbortEndsACallOfAnotherThread) {
  auto group = make_local_group(2).value();
  std::thread other([&] { group[0]->abort(); });
  std::vector<uint8_t> bytes(10);
  const FromRank from{1, bytes};
  EXPECT_FAILS(group[0]->exchange({}, {&from, 1}, kPatient), kCancelled);
  other.join();
  EXPECT_FAILS(group[0]->exchange({}, {}, kPatient), kCancelled);
  EXPECT_TRUE(group[0]->lost().empty());
}

// Ranks 1 and on in processes of their own: each enters, then runs body(carrier).
struct ProcessGroup {
  std::vector<Child> children;
  std::unique_ptr<Carrier> carrier;  // of rank 0

  template <class Body>
  ProcessGroup(unsigned size, const Body& body) {
    const auto backend = find_backend("tcp").value();
    const GroupOptions options{.size = size, .secret = Secret("s")};
    const auto gathering = backend->open(options, kPatient).value();
    for (unsigned rank = 1; rank < size; ++rank) {
      children.emplace_back([&] {
        const auto own = backend->enter(gathering->ticket(), rank, options, kPatient).value();
        body(*own);
      });
    }
    carrier = gathering->finish(kPatient).value();
  }
};

constexpr size_t kMany = size_t{64} << 20;

// Takes the first half of what comes: the rest fills the connection and stays there.
void take_half(Carrier& carrier) {
  if (carrier.rank() != 2) {
    std::vector<uint8_t> all(kMany);
    (void)carrier.broadcast(0, all, kPatient).ok();
    return;
  }
  for (;;) ::pause();
}

TEST(Failures, ARankKilledInTheMiddleOfAnExchange) {
  ProcessGroup group(4, take_half);
  const std::vector<uint8_t> bytes(kMany);
  const ToRank to{2, bytes};
  std::thread killer([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    group.children[1].kill();
  });
  const Status status = group.carrier->exchange({&to, 1}, {}, kPatient);
  killer.join();
  EXPECT_FAILS(status, kUnavailable, "tcp: rank 2 (127.0.0.1:");
  EXPECT_EQ(group.carrier->lost(), Ranks{2});
}

TEST(Failures, ARankKilledInTheMiddleOfABroadcast) {
  // Rank 3 tells rank 0 whom it lost: it stands behind the killed one in the chain.
  ProcessGroup group(4, [](Carrier& carrier) {
    if (carrier.rank() == 2) {
      for (;;) ::pause();
    }
    std::vector<uint8_t> bytes(kMany);
    (void)carrier.broadcast(0, bytes, kPatient).ok();
    const Ranks lost = carrier.lost();
    const uint8_t word = lost.size() == 1 ? uint8_t(lost[0]) : 99;
    const ToRank to{0, {&word, 1}};
    (void)carrier.exchange({&to, 1}, {}, kPatient).ok();
  });
  std::vector<uint8_t> bytes(kMany);
  std::thread killer([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    group.children[1].kill();
  });
  const Status own = group.carrier->broadcast(0, bytes, kPatient);
  killer.join();
  EXPECT_TRUE(own.ok() || group.carrier->lost() == Ranks{2}) << own.to_string();
  for (const unsigned rank : {1u, 3u}) {
    uint8_t word = 0;
    const FromRank from{rank, {&word, 1}};
    const Status status = group.carrier->exchange({}, {&from, 1}, kPatient);
    EXPECT_TRUE(status.ok()) << status.to_string();
    EXPECT_EQ(word, 2) << "rank " << rank;
  }
}

TEST(Failures, AHungRankIsNamedWhenTheTimeIsOver) {
  ProcessGroup group(3, take_half);
  group.children[1].hang();
  std::vector<uint8_t> bytes(kMany);
  const ToRank to{2, bytes};
  EXPECT_FAILS(group.carrier->exchange({&to, 1}, {}, 0.3), kUnavailable,
               "tcp: rank 2 (127.0.0.1:", "did not finish within 0.3 seconds");
  EXPECT_EQ(group.carrier->lost(), Ranks{2});
}

}  // namespace
}  // namespace deltawire::testing
