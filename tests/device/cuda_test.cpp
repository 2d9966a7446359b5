// device/cuda.h without a GPU, and in a build without CUDA: each call fails with the reason.
#include "device/cuda.h"

#include <gtest/gtest.h>

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
  const uint8_t byte = 0;
  uint8_t to = 0;
  EXPECT_EQ(cuda::send({&byte, 1}, &to, nullptr).code(), status.code());
}

}  // namespace
}  // namespace deltawire
