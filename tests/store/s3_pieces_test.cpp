#include "store/s3/pieces.h"

#include "test_files.h"

namespace deltawire::s3 {
namespace {

using deltawire::testing::is_failure;

constexpr uint64_t kMiB = uint64_t{1} << 20;

TEST(S3Pieces, CoverTheWhole) {
  for (const uint64_t size : {uint64_t{1}, 5 * kMiB - 1, 5 * kMiB, 5 * kMiB + 1, 100 * kMiB + 7}) {
    for (const unsigned connections : {1U, 3U, 16U}) {
      const Pieces pieces = Pieces::cut(size, connections, 5 * kMiB, 16 * kMiB, 10000);
      uint64_t at = 0;
      for (uint64_t i = 0; i < pieces.count(); ++i) {
        EXPECT_EQ(pieces.offset(i), at);
        EXPECT_GT(pieces.length(i), 0u);
        EXPECT_TRUE(i + 1 == pieces.count() || pieces.length(i) >= 5 * kMiB);
        at += pieces.length(i);
      }
      EXPECT_EQ(at, size);
    }
  }
  EXPECT_EQ(Pieces::cut(0, 4, 1, 1, 10).count(), 0u);
}

TEST(S3Pieces, KeepConnectionsBusyWithinTheLimits) {
  EXPECT_EQ(Pieces::cut(160 * kMiB, 16, 5 * kMiB, 16 * kMiB, 10000).piece_size, 10 * kMiB);
  EXPECT_EQ(Pieces::cut(20 * kMiB, 16, 5 * kMiB, 16 * kMiB, 10000).piece_size, 5 * kMiB);
  EXPECT_EQ(Pieces::cut(1000 * kMiB, 16, 5 * kMiB, 16 * kMiB, 10000).piece_size, 16 * kMiB);
  EXPECT_EQ(Pieces::cut(20 * kMiB, 1, 5 * kMiB, 1 * kMiB, 10000).piece_size, 5 * kMiB);
  const uint64_t huge = uint64_t{5} << 40;  // the largest object S3 has
  const Pieces pieces = Pieces::cut(huge, 16, 5 * kMiB, 16 * kMiB, 10000);
  EXPECT_LE(pieces.count(), 10000u);
  EXPECT_GE(pieces.count(), 9999u);
}

TEST(S3Pieces, EachIsMovedOnce) {
  std::mutex mutex;
  std::multiset<uint64_t> moved;
  const Status status = move_pieces({1000, 7}, 8, PieceRetries::at_most(0),
                                    [&](uint64_t i, const std::atomic<bool>*) {
                                      const std::lock_guard lock(mutex);
                                      moved.insert(i);
                                      return Status();
                                    });
  EXPECT_TRUE(status.ok());
  EXPECT_EQ(moved.size(), 143u);
  EXPECT_EQ(std::set<uint64_t>(moved.begin(), moved.end()).size(), 143u);
}

TEST(S3Pieces, TheFirstFailureEndsTheOthers) {
  std::atomic<int> given_up{0};
  const Status status =
      move_pieces({100, 1}, 4, PieceRetries::at_most(0),
                  [&](uint64_t i, const std::atomic<bool>* stop) -> Status {
                    if (i == 2) return io_error("piece 2 broke");
                    while (!*stop) std::this_thread::yield();  // a transfer that would never end
                    ++given_up;
                    return cancelled("given up");
                  });
  EXPECT_FAILS(status, Code::kIo, "piece 2 broke");
  EXPECT_LE(given_up, 3);
}

TEST(S3Pieces, SlotsLimitWhatIsOnTheWay) {
  Slots slots(3);
  std::atomic<int> now{0}, most{0};
  const Status status =
      move_pieces({64, 1}, 8, PieceRetries::at_most(0), [&](uint64_t, const std::atomic<bool>*) {
        const Slots::Slot slot(&slots);
        const int count = ++now;
        for (int seen = most; count > seen && !most.compare_exchange_weak(seen, count);) {
        }
        std::this_thread::yield();
        --now;
        return Status();
      });
  EXPECT_TRUE(status.ok());
  EXPECT_LE(most, 3);
}

// Pauses that nobody waits for.
PieceRetries retries_without_pauses(unsigned retries, std::atomic<int>* made) {
  PieceRetries out = PieceRetries::at_most(retries);
  out.clock.sleep = [](double) {};
  out.before_retry = [made] { ++*made; };
  return out;
}

TEST(S3Pieces, APieceThatIsUnavailableGoesAgainByItself) {
  std::atomic<int> retries{0};
  std::vector<std::atomic<int>> calls(5);
  const Status status =
      move_pieces({50, 10}, 2, retries_without_pauses(6, &retries),
                  [&](uint64_t i, const std::atomic<bool>*) -> Status {
                    return ++calls[i] <= 2 && i == 3 ? unavailable("503") : Status();
                  });
  EXPECT_TRUE(status.ok()) << status.to_string();
  EXPECT_EQ(retries, 2);
  for (size_t i = 0; i < calls.size(); ++i) EXPECT_EQ(calls[i], i == 3 ? 3 : 1);
}

TEST(S3Pieces, TroubleThatStaysIsForTheWholeTransfer) {
  std::atomic<int> retries{0}, calls{0};
  const auto move = [&](uint64_t, const std::atomic<bool>*) -> Status {
    ++calls;
    return unavailable("503");
  };
  EXPECT_EQ(move_pieces({50, 10}, 1, retries_without_pauses(6, &retries), move).code(),
            Code::kUnavailable);
  EXPECT_EQ(calls, 4);
  calls = 0;  // a transfer of one piece
  EXPECT_EQ(move_pieces({10, 10}, 1, retries_without_pauses(6, &retries), move).code(),
            Code::kUnavailable);
  EXPECT_EQ(calls, 1);
  calls = 0;  // no retries are wanted
  EXPECT_EQ(move_pieces({50, 10}, 1, retries_without_pauses(0, &retries), move).code(),
            Code::kUnavailable);
  EXPECT_EQ(calls, 1);
}

TEST(S3Pieces, OtherFailuresAreAnswersAtOnce) {
  std::atomic<int> retries{0};
  const Status status = move_pieces(
      {50, 10}, 1, retries_without_pauses(6, &retries),
      [&](uint64_t, const std::atomic<bool>*) -> Status { return corruption("damaged"); });
  EXPECT_EQ(status.code(), Code::kCorruption);
  EXPECT_EQ(retries, 0);
}

}  // namespace
}  // namespace deltawire::s3
