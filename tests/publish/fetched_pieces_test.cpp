// Readers side by side, each of few bytes at a time.
#include "publish/fetched_pieces.h"

#include <numeric>

#include "test_files.h"

namespace deltawire::testing {
namespace {

constexpr uint64_t kPiece = FetchedPieces::kPieceBytes, kStep = 128 << 10;

struct Source {
  std::vector<uint8_t> bytes;
  uint64_t fetched = 0;
  FetchedPieces* pieces;

  Source(FetchedPieces* of, uint64_t size) : bytes(size), pieces(of) {
    for (uint64_t i = 0; i < size; ++i) bytes[i] = uint8_t(i * 2654435761U >> 13);
  }
  Status read(uint64_t offset, MutableBytes out) {
    return pieces->read(this, bytes.size(), offset, out, [&](uint64_t begin, MutableBytes piece) {
      fetched += piece.size();
      std::copy_n(bytes.begin() + ptrdiff_t(begin), piece.size(), piece.begin());
      return Status();
    });
  }
  bool reads_right(uint64_t offset, uint64_t size) {
    std::vector<uint8_t> out(size);
    return read(offset, out).ok() &&
           std::equal(out.begin(), out.end(), bytes.begin() + ptrdiff_t(offset));
  }
};

TEST(FetchedPieces, EachIsFetchedOnceForReadersInTurn) {
  FetchedPieces pieces;
  Source source(&pieces, 9 * kPiece + 12345);
  for (const uint64_t readers : {1, 2, 3}) {  // each has its part, from end to end
    source.fetched = 0;
    const uint64_t part = (source.bytes.size() + readers - 1) / readers / kPiece * kPiece + kPiece;
    for (uint64_t at = 0; at < part; at += kStep) {
      for (uint64_t r = 0; r < readers; ++r) {
        const uint64_t begin = r * part + at;
        const uint64_t end = std::min<uint64_t>((r + 1) * part, source.bytes.size());
        if (begin >= end) continue;
        ASSERT_TRUE(source.reads_right(begin, std::min(kStep, end - begin)));
      }
    }
    EXPECT_EQ(source.fetched, source.bytes.size()) << readers;
    EXPECT_EQ(pieces.num_pieces(), 0);
  }
}

TEST(FetchedPieces, WhoReadsAgainSeesWhatIsThereThen) {
  FetchedPieces pieces;
  Source source(&pieces, kPiece / 2);
  ASSERT_TRUE(source.reads_right(0, kPiece / 2));
  source.bytes[7] ^= 1;
  EXPECT_TRUE(source.reads_right(0, kPiece / 2));
}

TEST(FetchedPieces, ReadersThatStopKeepLittle) {
  FetchedPieces pieces;
  Source source(&pieces, 4 * FetchedPieces::kMostPieces * kPiece / 2);
  for (uint64_t at = 0; at < source.bytes.size(); at += kPiece) {
    ASSERT_TRUE(source.reads_right(at, 100));
    EXPECT_LE(pieces.num_pieces(), FetchedPieces::kMostPieces);
  }
  EXPECT_EQ(pieces.num_pieces(), FetchedPieces::kMostPieces);
  Source other(&pieces, 1000);
  ASSERT_TRUE(other.reads_right(10, 100));
  pieces.forget(&source);
  EXPECT_EQ(pieces.num_pieces(), 1);
  ASSERT_TRUE(other.reads_right(100, 900));
  EXPECT_EQ(pieces.num_pieces(), 0);
}

TEST(FetchedPieces, AFailureKeepsNothing) {
  FetchedPieces pieces;
  uint8_t out[10];
  const auto fails = [](uint64_t, MutableBytes) { return io_error("the device is gone"); };
  EXPECT_EQ(pieces.read(&pieces, 100, 0, out, fails).message(), "the device is gone");
  EXPECT_EQ(pieces.num_pieces(), 0);
}

}  // namespace
}  // namespace deltawire::testing
