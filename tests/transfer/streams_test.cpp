// Objects so large that they are hashed and followed by threads of their own.
#include "transfer/fetch_sink.h"

#include <latch>
#include <new>

#include "test_files.h"
#include "transfer/upload_queue.h"

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

TEST_F(FetchSinkTest, HashesDuplicatePiecesFromTheFile) {
  const auto sink = make(nullptr);
  for (const size_t at : places()) {
    ASSERT_TRUE(write_piece(sink.get(), at).ok());
    EXPECT_TRUE(at % 3 != 0 || write_piece(sink.get(), at).ok());
  }
  EXPECT_EQ(sink->finish().value(), digest);
}

TEST_F(FetchSinkTest, FullDiskStopsIt) {
  RecordingFollower follower(io_error("no space"), 1'000'000);
  const auto sink = make(&follower);
  Status status;
  size_t at = 0;
  for (; status.ok() && at < object.size(); at += kPieceBytes) status = write_piece(sink.get(), at);
  EXPECT_EQ(status.code(), Code::kIo) << status.to_string();
  // At most the queue between the two and one partial chunk.
  EXPECT_LE(at, 1'000'000 + (size_t{5} << 20));
}

TEST_F(FetchSinkTest, DamageIsReportedAfterTheDigest) {
  RecordingFollower follower(corruption("not a packed file"), 1'000'000);
  const auto sink = make(&follower);
  for (const size_t at : places()) ASSERT_TRUE(write_piece(sink.get(), at).ok());
  EXPECT_EQ(sink->finish().value(), digest);
  EXPECT_EQ(sink->followed().code(), Code::kCorruption);
}

TEST_F(FetchSinkTest, RejectsBytesPastTheEndAndStopsOnRequest) {
  RecordingFollower follower;
  const auto sink = make(&follower);
  ASSERT_TRUE(write_piece(sink.get(), 0).ok());
  EXPECT_EQ(sink->write(object.size() - 1, Bytes(object).first(2)).code(), Code::kCorruption);
  stop = true;
  EXPECT_EQ(write_piece(sink.get(), kPieceBytes).code(), Code::kCancelled);
}

TEST_F(FetchSinkTest, MissingBytesChangeTheDigest) {
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

std::vector<uint8_t> tee_bytes(size_t size) {
  std::mt19937_64 random(size);
  std::vector<uint8_t> bytes(size);
  for (uint8_t& byte : bytes) byte = uint8_t(random());
  return bytes;
}

TEST(Tee, EveryConsumerGetsEveryByteInOrder) {
  std::mt19937_64 random(1);
  for (const bool threaded : {false, true}) {
    for (const size_t size : {0, 1, 1000, 524'288, 9'000'000}) {
      const std::vector<uint8_t> bytes = tee_bytes(size);
      std::vector<std::vector<uint8_t>> got(3);
      std::vector<Tee::Take> takers;
      for (std::vector<uint8_t>& own : got) {
        takers.push_back([&own](Bytes some) { own.insert(own.end(), some.begin(), some.end()); });
      }
      Tee tee(std::move(takers), threaded);
      for (size_t at = 0; at < size;) {
        const size_t piece = std::min<size_t>(1 + random() % 1'500'000, size - at);
        tee.write(Bytes(bytes).subspan(at, piece));
        at += piece;
      }
      tee.drain();
      tee.drain();  // nothing is left
      for (const std::vector<uint8_t>& own : got) EXPECT_TRUE(own == bytes) << size;
    }
  }
}

TEST(Tee, ContinuesAfterADrain) {
  const std::vector<uint8_t> bytes = tee_bytes(3000);
  std::vector<uint8_t> got;
  Tee tee({[&](Bytes some) { got.insert(got.end(), some.begin(), some.end()); }}, true);
  for (size_t at = 0; at < bytes.size(); at += 1000) {
    tee.write(Bytes(bytes).subspan(at, 1000));
    tee.drain();
    EXPECT_EQ(got.size(), at + 1000);
  }
  EXPECT_TRUE(got == bytes);
}

TEST(Tee, WaitsForTheSlowestConsumer) {
  constexpr size_t kMost = size_t{4} << 20;
  std::atomic<size_t> written{0}, slow{0};
  std::atomic<bool> too_far{false};
  const auto take_slowly = [&](Bytes some) {
    std::this_thread::yield();
    if (written > slow + kMost) too_far = true;
    slow += some.size();
  };
  Tee tee({[](Bytes) {}, take_slowly}, true);
  const std::vector<uint8_t> bytes = tee_bytes(100'000);
  for (int i = 0; i < 300; ++i) {
    tee.write(bytes);
    written += bytes.size();
  }
  tee.drain();
  EXPECT_EQ(slow, written);
  EXPECT_FALSE(too_far);
}

TEST(Tee, DropsQueuedChunksWhenDestroyed) {
  std::latch began(1), go_on(1);
  std::atomic<size_t> calls{0};
  std::thread opener;
  {
    Tee tee({[&](Bytes) {
              ++calls;
              began.count_down();
              go_on.wait();
            }},
            true);
    tee.write(tee_bytes(3'000'000));  // several chunks, less than the most
    began.wait();
    opener = std::thread([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(500));
      go_on.count_down();
    });
  }
  opener.join();
  EXPECT_EQ(calls, 1u);
}

TEST(UploadQueue, RunsEveryJob) {
  UploadQueue queue("uploading", 3, 100, PublishClock(), {});
  std::atomic<int> done = 0;
  for (int i = 0; i < 50; ++i) {
    ASSERT_TRUE(queue.push(30, [&] { return ++done, Status(); }).ok());
  }
  ASSERT_TRUE(queue.finish().ok());
  EXPECT_EQ(done, 50);
  EXPECT_EQ(queue.phase("upload")->name, "upload");
}

TEST(UploadQueue, FirstFailureStopsIt) {
  UploadQueue queue("uploading", 1, 1, PublishClock(), {});
  bool ran = false;
  (void)queue.push(1, [] { return io_error("the first"); });
  (void)queue.push(1, [&] { return ran = true, io_error("the second"); });
  EXPECT_EQ(queue.finish().message(), "the first");
  EXPECT_FALSE(ran);
  EXPECT_TRUE(queue.stopping());
}

// The message names the queue's operation, not a codec's.
TEST(UploadQueue, OutOfMemoryNamesTheOperation) {
  UploadQueue uploads("uploading", 1, 1, PublishClock(), {});
  (void)uploads.push(1, []() -> Status { throw std::bad_alloc(); });
  EXPECT_EQ(uploads.finish().to_string(), "out of memory: uploading");
  UploadQueue writes("writing", 1, 1, PublishClock(), {});
  (void)writes.push(1, []() -> Status { throw std::bad_alloc(); });
  EXPECT_EQ(writes.finish().to_string(), "out of memory: writing");
}

}  // namespace
}  // namespace deltawire::testing
