// Objects in buckets: in order, never more than two buckets in memory.
#include "ship/buckets.h"

#include <gtest/gtest.h>

#include <map>
#include <thread>

#include "store/bodies.h"

namespace deltawire::testing {
namespace {

TEST(Buckets, ObjectsComeOutWholeWhateverTheSizeOfABucket) {
  for (const uint64_t limit : {1U, 7U, 64U, 4096U}) {
    BucketQueue queue(limit);
    std::map<std::string, std::string> sent;
    for (int i = 0; i < 5; ++i)
      sent["o" + std::to_string(i)] = std::string(size_t(i * 37), char('a' + i));
    std::vector<std::thread> threads;
    for (const auto& [name, text] : sent) {
      threads.emplace_back([&queue, n = name, t = text] {
        EXPECT_TRUE(queue.add({}, n, MemoryBody(std::string_view(t))).ok());
      });
    }
    std::thread closer([&] {
      for (std::thread& thread : threads) thread.join();
      queue.commit({"run", 3, {}});
      while (!queue.wait_idle(1)) {
      }
      queue.close();
    });
    std::map<std::string, std::string> got;
    Bucket bucket;
    size_t commits = 0;
    while (queue.take(&bucket)) {
      EXPECT_LE(bucket.bytes.size(), limit);
      size_t at = 0;
      for (const BucketPiece& piece : bucket.pieces) {
        EXPECT_EQ(piece.object_bytes, sent[piece.name].size());
        EXPECT_EQ(piece.offset, got[piece.name].size());
        got[piece.name].append(bucket.bytes.begin() + ptrdiff_t(at),
                               bucket.bytes.begin() + ptrdiff_t(at + piece.length));
        at += piece.length;
      }
      EXPECT_EQ(at, bucket.bytes.size());
      commits += bucket.commits.size();
    }
    closer.join();
    EXPECT_EQ(got, sent);
    EXPECT_EQ(commits, 1);
  }
}

TEST(Buckets, ClosedOnesLetEverybodyGo) {
  BucketQueue queue(4);
  std::thread adder(
      [&] { EXPECT_TRUE(queue.add({}, "o", MemoryBody(std::string_view("too much"))).ok()); });
  queue.close();
  adder.join();
  EXPECT_TRUE(queue.wait_idle(0));
}

}  // namespace
}  // namespace deltawire::testing
