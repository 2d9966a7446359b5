// Objects large enough that threads of their own hash and follow them.
#include "transfer/fetch_sink.h"

#include "test_files.h"

namespace deltawire::testing {
namespace {

constexpr size_t kPieceBytes = 100'000;

class RecordingFollower final : public Follower {
 public:
  explicit RecordingFollower(Status then = {}, size_t after = SIZE_MAX)
      : then_(std::move(then)), after_(after) {}
  Status take(Bytes bytes) override {
    EXPECT_FALSE(failed_) << "asked again after a failure";
    got_.insert(got_.end(), bytes.begin(), bytes.end());
    failed_ = got_.size() > after_;
    return failed_ ? then_ : Status();
  }
  Status finish() override { return {}; }
  const std::vector<uint8_t>& got() const { return got_; }

 private:
  const Status then_;
  const size_t after_;
  bool failed_ = false;
  std::vector<uint8_t> got_;
};

struct FetchSinkTest : ::testing::Test {
  FetchSinkTest() : object(12'345'678) {
    for (uint8_t& byte : object) byte = uint8_t(random());
    digest = digest_of(DigestKind::kSha256, object);
  }

  std::unique_ptr<FetchSink> make(Follower* follower) {
    return must(
        FetchSink::create(folder.path() / "object", object.size(), &received, &stop, follower));
  }
  Status write_piece(FetchSink* sink, size_t at) {
    return sink->write(at, Bytes(object).subspan(at, std::min(kPieceBytes, object.size() - at)));
  }
  std::vector<size_t> places() const {
    std::vector<size_t> all;
    for (size_t at = 0; at < object.size(); at += kPieceBytes) all.push_back(at);
    return all;
  }

  std::mt19937_64 random{1};
  std::vector<uint8_t> object;
  Digest digest;
  testing::TempFolder folder;
  std::atomic<uint64_t> received{0};
  std::atomic<bool> stop{false};
};

TEST_F(FetchSinkTest, HashesAndFollowsInAnyOrder) {
  for (const bool shuffled : {false, true}) {
    for (const bool followed : {false, true}) {
      RecordingFollower follower;
      const auto sink = make(followed ? &follower : nullptr);
      std::vector<size_t> all = places();
      if (shuffled) std::shuffle(all.begin(), all.end(), random);
      for (const size_t at : all) ASSERT_TRUE(write_piece(sink.get(), at).ok());
      EXPECT_EQ(sink->finish().value(), digest);
      EXPECT_TRUE(sink->followed().ok());
      EXPECT_TRUE(!followed || follower.got() == object);
    }
  }
}

TEST_F(FetchSinkTest, PlainPiecesThatComeTwiceAreHashedFromTheFile) {
  const auto sink = make(nullptr);
  for (const size_t at : places()) {
    ASSERT_TRUE(write_piece(sink.get(), at).ok());
    EXPECT_TRUE(at % 3 != 0 || write_piece(sink.get(), at).ok());
  }
  EXPECT_EQ(sink->finish().value(), digest);
}

TEST_F(FetchSinkTest, AFullDiskEndsIt) {
  RecordingFollower follower(io_error("no space"), 1'000'000);
  const auto sink = make(&follower);
  Status status;
  size_t at = 0;
  for (; status.ok() && at < object.size(); at += kPieceBytes) {
    status = write_piece(sink.get(), at);
  }
  EXPECT_EQ(status.code(), Code::kIo) << status.to_string();
  // What may wait between the two, and a chunk that is not full.
  EXPECT_LE(at, 1'000'000 + (size_t{5} << 20));
}

TEST_F(FetchSinkTest, DamageWaitsForTheDigest) {
  RecordingFollower follower(corruption("not a packed file"), 1'000'000);
  const auto sink = make(&follower);
  for (const size_t at : places()) ASSERT_TRUE(write_piece(sink.get(), at).ok());
  EXPECT_EQ(sink->finish().value(), digest);
  EXPECT_EQ(sink->followed().code(), Code::kCorruption);
}

TEST_F(FetchSinkTest, StopsOnRequestAndBehindTheEnd) {
  RecordingFollower follower;
  const auto sink = make(&follower);
  ASSERT_TRUE(write_piece(sink.get(), 0).ok());
  EXPECT_EQ(sink->write(object.size() - 1, Bytes(object).first(2)).code(), Code::kCorruption);
  stop = true;
  EXPECT_EQ(write_piece(sink.get(), kPieceBytes).code(), Code::kCancelled);
}

TEST_F(FetchSinkTest, MissingBytesAreNamed) {
  for (const bool followed : {false, true}) {
    RecordingFollower follower;
    const auto sink = make(followed ? &follower : nullptr);
    for (const size_t at : places()) {
      EXPECT_TRUE(at == kPieceBytes || write_piece(sink.get(), at).ok());
    }
    const Result<Digest> got = sink->finish();
    EXPECT_FALSE(got.ok() && *got == digest);
  }
}

}  // namespace
}  // namespace deltawire::testing
