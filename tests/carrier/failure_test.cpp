// Ranks that die, hang, come late or want something else: an error names them, the others go on.
#include <gtest/gtest.h>

#include <thread>

#include "carrier/backend.h"
#include "carrier/tcp/socket_carrier.h"
#include "processes.h"

namespace deltawire {
namespace {

using Ranks = std::vector<unsigned>;
constexpr double kPatient = 60;

bool says(const Status& status, std::string_view text) {
  return status.message().find(text) != std::string::npos;
}

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
  EXPECT_EQ(status.code(), Code::kCorruption);
  EXPECT_TRUE(says(status, "rank 1 sends 10 bytes where 12 are expected")) << status.to_string();
}

TEST(Failures, RanksThatAreNone) {
  auto group = make_local_group(2).value();
  std::vector<uint8_t> bytes(10);
  const ToRank too_far{2, bytes}, itself{0, bytes};
  EXPECT_EQ(group[0]->exchange({&too_far, 1}, {}, 1).code(), Code::kInvalidArgument);
  EXPECT_EQ(group[0]->exchange({&itself, 1}, {}, 1).code(), Code::kInvalidArgument);
  EXPECT_EQ(group[0]->broadcast(2, bytes, 1).code(), Code::kInvalidArgument);
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
  const Status status = carrier.exchange(to, from, timeout_seconds);
  EXPECT_EQ(status.code(), Code::kUnavailable);
  EXPECT_TRUE(says(status, "rank " + std::to_string(gone))) << status.to_string();
  EXPECT_EQ(carrier.lost(), Ranks{gone});
  for (unsigned rank = 0; rank < carrier.size(); ++rank) {
    if (rank == carrier.rank() || rank == gone) continue;
    EXPECT_EQ(room[rank], std::vector<uint8_t>(1 << 20, uint8_t(rank + 1)));
  }
}

template <class Body>
void on_the_others(std::vector<std::unique_ptr<Carrier>>& group, const Body& body) {
  std::vector<std::thread> threads;
  for (auto& carrier : group) {
    if (carrier) threads.emplace_back([&] { body(*carrier); });
  }
  for (auto& thread : threads) thread.join();
}

TEST(Failures, AGoneRankKeepsNobodyFromTheOthersBytes) {
  auto group = make_local_group(5).value();
  group[2].reset();
  on_the_others(group, [](Carrier& carrier) {
    exchange_with_all(carrier, 2, kPatient);
    exchange_with_all(carrier, 2, kPatient);  // it goes on to work among the rest
    std::vector<uint8_t> bytes(100);
    EXPECT_EQ(carrier.broadcast(0, bytes, kPatient).code(), Code::kUnavailable);
  });
}

TEST(Failures, ALateRankIsLostAlone) {
  auto group = make_local_group(3).value();
  auto late = std::move(group[1]);
  on_the_others(group, [](Carrier& carrier) { exchange_with_all(carrier, 1, 5); });
  EXPECT_TRUE(late->lost().empty());
  std::vector<uint8_t> bytes(10);
  const FromRank from{0, bytes};
  const Status status = late->exchange({}, {&from, 1}, kPatient);  // what came before its end
  EXPECT_FALSE(status.ok());
}

TEST(Failures, AChainNamesTheRankThatBrokeIt) {
  auto group = make_local_group(6).value();
  group[2].reset();
  on_the_others(group, [](Carrier& carrier) {
    std::vector<uint8_t> bytes(8 << 20);
    const Status status = carrier.broadcast(0, bytes, kPatient);
    if (carrier.rank() == 0) return;  // rank 1 may have taken all from it
    EXPECT_EQ(status.code(), Code::kUnavailable);
    EXPECT_TRUE(says(status, "rank 2")) << status.to_string();
    EXPECT_EQ(carrier.lost(), Ranks{2}) << carrier.rank();
  });
}

TEST(Failures, AbortEndsACallOfAnotherThread) {
  auto group = make_local_group(2).value();
  std::thread other([&] { group[0]->abort(); });
  std::vector<uint8_t> bytes(10);
  const FromRank from{1, bytes};
  EXPECT_EQ(group[0]->exchange({}, {&from, 1}, kPatient).code(), Code::kCancelled);
  other.join();
  EXPECT_EQ(group[0]->exchange({}, {}, kPatient).code(), Code::kCancelled);
  EXPECT_TRUE(group[0]->lost().empty());
}

// Ranks 1 and on in processes of their own: each enters, then runs body(carrier).
struct ProcessGroup {
  std::vector<Child> children;
  std::unique_ptr<Carrier> carrier;  // of rank 0

  template <class Body>
  ProcessGroup(unsigned size, const Body& body) {
    const auto backend = find_backend("tcp").value();
    GroupOptions options;
    options.size = size;
    options.secret = Secret("s");
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
  EXPECT_EQ(status.code(), Code::kUnavailable);
  EXPECT_TRUE(says(status, "tcp: rank 2 (127.0.0.1:")) << status.to_string();
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
  const Status status = group.carrier->exchange({&to, 1}, {}, 0.3);
  EXPECT_EQ(status.code(), Code::kUnavailable);
  EXPECT_TRUE(says(status, "tcp: rank 2 (127.0.0.1:")) << status.to_string();
  EXPECT_TRUE(says(status, "did not finish within 0.3 seconds")) << status.to_string();
  EXPECT_EQ(group.carrier->lost(), Ranks{2});
}

}  // namespace
}  // namespace deltawire
