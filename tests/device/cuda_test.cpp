// device/cuda.h without a GPU, and in a build without CUDA: each call fails with the reason.
#include "device/cuda.h"

#include <gtest/gtest.h>

#include "device/whole.h"

namespace deltawire {
namespace {

TEST(CudaTest, EveryCallReportsWhyThereIsNoGpu) {
  const Status status = cuda::available();
  if (status.ok()) GTEST_SKIP() << "there is a GPU";
  EXPECT_TRUE(status.code() == Code::kUnsupported || status.code() == Code::kDevice)
      << status.to_string();
  EXPECT_FALSE(status.message().empty());
  const Status created = cuda::Context::create().status();
  EXPECT_EQ(created.to_string(), status.to_string());
  uint8_t there = 0;
  EXPECT_EQ(cuda::copy_there(&there, &there, 1, nullptr).code(), status.code());
}

}  // namespace
}  // namespace deltawire
