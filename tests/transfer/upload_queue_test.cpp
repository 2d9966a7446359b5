#include "transfer/upload_queue.h"

#include <new>

#include "test_files.h"

namespace deltawire::testing {
namespace {

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

TEST(UploadQueue, TheFirstFailureEndsIt) {
  UploadQueue queue("uploading", 1, 1, PublishClock(), {});
  bool ran = false;
  (void)queue.push(1, [] { return io_error("the first"); });
  (void)queue.push(1, [&] { return ran = true, io_error("the second"); });
  EXPECT_EQ(queue.finish().message(), "the first");
  EXPECT_FALSE(ran);
  EXPECT_TRUE(queue.stopping());
}

// A job has no memory: the message says what the queue was doing, not what a codec would have done.
TEST(UploadQueue, OutOfMemoryNamesWhatWasDone) {
  UploadQueue uploads("uploading", 1, 1, PublishClock(), {});
  (void)uploads.push(1, []() -> Status { throw std::bad_alloc(); });
  EXPECT_EQ(uploads.finish().to_string(), "out of memory: uploading");
  UploadQueue writes("writing", 1, 1, PublishClock(), {});
  (void)writes.push(1, []() -> Status { throw std::bad_alloc(); });
  EXPECT_EQ(writes.finish().to_string(), "out of memory: writing");
}

}  // namespace
}  // namespace deltawire::testing
