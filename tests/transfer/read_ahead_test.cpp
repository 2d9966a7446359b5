// A body that is read and hashed ahead of its sender.
#include "transfer/read_ahead.h"

#include <algorithm>
#include <vector>

#include "checkpoints.h"

namespace deltawire::testing {
namespace {

constexpr size_t kSize = (size_t{20} << 20) + 777;

std::vector<uint8_t> contents() {
  std::vector<uint8_t> bytes(kSize);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = uint8_t(i * 2654435761U >> 13);
  return bytes;
}

// Fails from byte `end` on.
class CutBody final : public Body {
 public:
  CutBody(const Body& body, uint64_t end) : body_(body), end_(end) {}
  uint64_t size() const noexcept override { return body_.size(); }
  Status read(uint64_t offset, MutableBytes out) const override {
    return offset + out.size() > end_ ? io_error("cut") : body_.read(offset, out);
  }

 private:
  const Body& body_;
  const uint64_t end_;
};

std::vector<uint8_t> read_in_order(const Body& body, size_t begin, size_t piece) {
  std::vector<uint8_t> all(body.size() - begin);
  for (size_t at = 0; at < all.size(); at += piece) {
    const size_t size = std::min(piece, all.size() - at);
    EXPECT_TRUE(body.read(begin + at, {all.data() + at, size}).ok());
  }
  return all;
}

TEST(ReadAheadTest, GivesBytesAndDigestForAnyPieceSize) {
  const std::vector<uint8_t> bytes = contents();
  const MemoryBody body(bytes);
  for (const size_t piece : {size_t{100'000}, size_t{1} << 20, size_t{5'000'001}, kSize}) {
    ReadAhead ahead(body);
    EXPECT_EQ(read_in_order(ahead, 0, piece), bytes);
    EXPECT_EQ(must(ahead.sha256()), digest_of(DigestKind::kSha256, bytes));
  }
}

TEST(ReadAheadTest, RetriesAndOtherOrdersGiveTheSame) {
  const std::vector<uint8_t> bytes = contents();
  const MemoryBody body(bytes);
  ReadAhead ahead(body);
  std::vector<uint8_t> out(3'000'000);
  ASSERT_TRUE(ahead.read(0, out).ok());
  ASSERT_TRUE(ahead.read(9'000'000, out).ok());
  EXPECT_TRUE(std::equal(out.begin(), out.end(), bytes.begin() + 9'000'000));
  EXPECT_EQ(read_in_order(ahead, 0, 1'000'000), bytes);  // meets where it was, and goes on there
  EXPECT_EQ(must(ahead.sha256()), digest_of(DigestKind::kSha256, bytes));
}

TEST(ReadAheadTest, HashesBytesThatNobodyRead) {
  for (const size_t size : {size_t{0}, size_t{1}, kSize}) {
    const std::vector<uint8_t> bytes = contents();
    const MemoryBody body(Bytes(bytes).first(size));
    ReadAhead ahead(body);
    EXPECT_EQ(must(ahead.sha256()), digest_of(DigestKind::kSha256, Bytes(bytes).first(size)));
  }
}

TEST(ReadAheadTest, ReportsFailuresToTheReader) {
  const std::vector<uint8_t> bytes = contents();
  const MemoryBody body(bytes);
  const CutBody cut(body, 10'000'000);
  ReadAhead ahead(cut);
  std::vector<uint8_t> out(9'000'000);
  EXPECT_TRUE(ahead.read(0, out).ok());
  EXPECT_EQ(ahead.read(out.size(), out).code(), Code::kIo);
  EXPECT_EQ(ahead.sha256().status().code(), Code::kIo);
}

TEST(ReadAheadTest, CanBeDestroyedBeforeItIsRead) {
  const std::vector<uint8_t> bytes = contents();
  const MemoryBody body(bytes);
  ReadAhead ahead(body);
  std::vector<uint8_t> out(100);
  EXPECT_TRUE(ahead.read(0, out).ok());
}

}  // namespace
}  // namespace deltawire::testing
