// Exchanges and broadcasts among threads, over socket pairs.
#include <gtest/gtest.h>

#include <random>
#include <thread>

#include "carrier/tcp/socket_carrier.h"

namespace deltawire {
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

// Calls body(carrier) in a thread for each rank.
template <class Body>
void on_all_ranks(Group& group, const Body& body) {
  std::vector<std::thread> threads;
  for (auto& carrier : group) threads.emplace_back([&body, &carrier] { body(*carrier); });
  for (auto& thread : threads) thread.join();
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
  const Status status = carrier.exchange(to, from, 60);
  ASSERT_TRUE(status.ok()) << status.to_string();
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
          const Status status = carrier.broadcast(root, own, 60);
          ASSERT_TRUE(status.ok()) << status.to_string();
          ASSERT_TRUE(own == expected);
        }
      }
    });
  }
}

}  // namespace
}  // namespace deltawire
