// How messages over NCCL are cut: both ends alike. Needs no GPU.
#include <gtest/gtest.h>

#include <random>

#include "carrier/backend.h"
#include "carrier/nccl/rounds.h"
#include "deltawire/carrier_nccl.h"

namespace deltawire {
namespace {

using nccl::Message;

std::vector<std::vector<size_t>> sizes_with(const std::vector<nccl::Round>& rounds,
                                            Message::Kind kind, unsigned peer) {
  std::vector<std::vector<size_t>> sizes;
  for (const nccl::Round& round : rounds) {
    std::vector<size_t> of_round;
    for (const Message& message : round) {
      if (message.kind == kind && message.peer == peer) of_round.push_back(message.bytes.size());
    }
    sizes.push_back(std::move(of_round));
  }
  while (!sizes.empty() && sizes.back().empty()) sizes.pop_back();
  return sizes;
}

TEST(NcclRounds, BothEndsCutAlikeAndInOrder) {
  std::mt19937 random(1);
  constexpr unsigned kRanks = 4;
  constexpr uint64_t kShare = 1000;
  for (int repeat = 0; repeat < 50; ++repeat) {
    // sizes[a][b]: spans that rank a has for rank b.
    std::vector<uint8_t> memory(20'000);
    std::vector<std::vector<ToRank>> to(kRanks);
    std::vector<std::vector<FromRank>> from(kRanks);
    for (unsigned a = 0; a < kRanks; ++a) {
      for (unsigned b = 0; b < kRanks; ++b) {
        for (size_t n = random() % 5; n-- > 0;) {
          const size_t size = random() % 3 == 0 ? random() % 5000 : random() % 300;
          to[a].push_back({b, std::span(memory).first(size)});
          from[b].push_back({a, std::span(memory).first(size)});
        }
      }
    }
    std::vector<std::vector<nccl::Round>> rounds;
    for (unsigned rank = 0; rank < kRanks; ++rank) {
      rounds.push_back(nccl::exchange_rounds(to[rank], from[rank], kShare));
    }
    for (unsigned a = 0; a < kRanks; ++a) {
      for (unsigned b = 0; b < kRanks; ++b) {
        const auto sent = sizes_with(rounds[a], Message::Kind::kSend, b);
        ASSERT_EQ(sent, sizes_with(rounds[b], Message::Kind::kReceive, a));
        uint64_t total = 0, expected = 0;
        for (const auto& round : sent) {
          uint64_t of_round = 0;
          for (const size_t size : round) of_round += size;
          ASSERT_LE(of_round, kShare);
          ASSERT_GT(of_round, 0U);
          total += of_round;
        }
        for (const ToRank& one : to[a]) expected += one.rank == b ? one.bytes.size() : 0;
        ASSERT_EQ(total, expected);
      }
    }
  }
}

TEST(NcclRounds, PiecesAreTheSpansInOrder) {
  std::vector<uint8_t> memory(2500);
  const std::vector<ToRank> to = {{1, std::span(memory).first(300)},
                                  {1, std::span(memory).subspan(300)}};
  const uint8_t* at = memory.data();
  for (const nccl::Round& round : nccl::exchange_rounds(to, {}, 1000)) {
    for (const Message& message : round) {
      EXPECT_EQ(message.bytes.data(), at);
      at += message.bytes.size();
    }
  }
  EXPECT_EQ(at, memory.data() + memory.size());
  EXPECT_EQ(nccl::broadcast_rounds(0, memory, 1000).size(), 3U);
  EXPECT_TRUE(nccl::broadcast_rounds(0, {}, 1000).empty());
}

TEST(NcclBackend, RefusesWhatIsNoTicket) {
  auto backend = find_backend("nccl");
  ASSERT_TRUE(backend.ok()) << backend.status().to_string();
  const GroupOptions options{.size = 2};
  EXPECT_EQ((*backend)->enter("xyz", 1, options, 1).status().code(), Code::kInvalidArgument);
  const Status status = (*backend)->enter("abcd", 1, options, 1).status();
  EXPECT_TRUE(status.code() == Code::kInvalidArgument || status.code() == Code::kUnsupported)
      << status.to_string();
}

}  // namespace
}  // namespace deltawire
