// A group over NCCL, as far as one GPU goes: a rank of its own, ranks that never come, ranks that
// share the GPU where NCCL lets them.
#include <gtest/gtest.h>

#include <future>
#include <random>
#include <thread>

#include "base/clock.h"
#include "carrier/backend.h"
#include "deltawire/carrier_nccl.h"
#include "kernels/cuda/memory.h"

namespace deltawire {
namespace {

class NcclTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const Status status = cuda::check_device();
    if (!status.ok()) GTEST_SKIP() << "skipped: no GPU: " << status.message();
    const auto id = nccl_unique_id();
    if (id.status().code() == Code::kUnsupported) {
      GTEST_SKIP() << "skipped: " << id.status().message();
    }
    ASSERT_TRUE(id.ok()) << id.status().to_string();
    id_ = *id;
  }

  // A new id each time: one is good for one group.
  std::unique_ptr<Carrier> alone(uint64_t bucket_bytes = uint64_t{64} << 20) {
    const auto id = nccl_unique_id();
    EXPECT_TRUE(id.ok()) << id.status().to_string();
    auto carrier = make_nccl_carrier({.id = *id, .bucket_bytes = bucket_bytes});
    EXPECT_TRUE(carrier.ok()) << carrier.status().to_string();
    return carrier.ok() ? std::move(*carrier) : nullptr;
  }

  std::string id_;
};

using Bytes = std::vector<uint8_t>;

Bytes random_bytes(size_t size, unsigned seed) {
  std::mt19937_64 random(seed);
  Bytes bytes(size);
  for (uint8_t& byte : bytes) byte = uint8_t(random());
  return bytes;
}

// On the GPU, with a copy on the host to compare.
struct OnGpu {
  cuda::Buffer buffer;
  explicit OnGpu(const Bytes& bytes) {
    auto allocated = cuda::Buffer::allocate(cuda::Place::kDevice, bytes.size());
    EXPECT_TRUE(allocated.ok()) << allocated.status().to_string();
    buffer = std::move(*allocated);
    EXPECT_TRUE(cuda::copy(buffer.data(), bytes.data(), bytes.size(), nullptr).ok());
    EXPECT_TRUE(cuda::wait(nullptr).ok());
  }
  std::span<uint8_t> span() const { return {buffer.data(), buffer.size()}; }
  Bytes bytes() const {
    Bytes out(buffer.size());
    EXPECT_TRUE(cuda::copy(out.data(), buffer.data(), out.size(), nullptr).ok());
    EXPECT_TRUE(cuda::wait(nullptr).ok());
    return out;
  }
};

TEST_F(NcclTest, ARankAloneExchangesWithItself) {
  const auto carrier = alone(1 << 20);  // several rounds
  ASSERT_TRUE(carrier);
  EXPECT_EQ(carrier->name(), "nccl");
  EXPECT_EQ(carrier->memory(), Memory::kCuda);
  for (const size_t size : {size_t{1}, size_t{1000}, size_t{1} << 20, size_t{5'000'001}}) {
    const Bytes first = random_bytes(size, 1), second = random_bytes(777, 2);
    Bytes in_first(size), in_second(777);
    const ToRank to[] = {{0, first}, {0, second}, {0, {}}};
    const FromRank from[] = {{0, in_first}, {0, in_second}};
    const Status status = carrier->exchange(to, from, 60);
    ASSERT_TRUE(status.ok()) << status.to_string();
    EXPECT_TRUE(in_first == first && in_second == second) << size;
  }
}

TEST_F(NcclTest, MemoryOfHostAndGpuMix) {
  const auto carrier = alone(1 << 20);
  ASSERT_TRUE(carrier);
  const Bytes bytes = random_bytes(3'000'000, 3);
  const OnGpu there(bytes), into(Bytes(bytes.size()));
  Bytes host(bytes.size());
  // From the GPU to the host, and from the host to the GPU.
  const ToRank to[] = {{0, there.span()}, {0, bytes}};
  const FromRank from[] = {{0, host}, {0, into.span()}};
  const Status status = carrier->exchange(to, from, 60);
  ASSERT_TRUE(status.ok()) << status.to_string();
  EXPECT_TRUE(host == bytes);
  EXPECT_TRUE(into.bytes() == bytes);
}

TEST_F(NcclTest, ABroadcastLeavesTheRootAsItIs) {
  const auto carrier = alone(1 << 20);
  ASSERT_TRUE(carrier);
  Bytes bytes = random_bytes(3'000'000, 4);
  const Bytes before = bytes;
  ASSERT_TRUE(carrier->broadcast(0, bytes, 60).ok());
  EXPECT_TRUE(bytes == before);
  const OnGpu there(before);
  ASSERT_TRUE(carrier->broadcast(0, there.span(), 60).ok());
  EXPECT_TRUE(there.bytes() == before);
  EXPECT_TRUE(carrier->broadcast(0, {}, 60).ok());
}

TEST_F(NcclTest, RefusesWhatCannotBe) {
  EXPECT_EQ(make_nccl_carrier({.id = "short"}).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(make_nccl_carrier({.id = id_, .rank = 3, .size = 2}).status().code(),
            Code::kInvalidArgument);
  const auto carrier = alone();
  ASSERT_TRUE(carrier);
  Bytes byte(1);
  const ToRank to{1, byte};
  EXPECT_EQ(carrier->exchange({&to, 1}, {}, 1).code(), Code::kInvalidArgument);
  EXPECT_EQ(carrier->broadcast(1, byte, 1).code(), Code::kInvalidArgument);
  EXPECT_TRUE(carrier->broadcast(0, byte, 60).ok());  // nothing is lost by that
}

// The other rank never comes: neither end waits for ever.
TEST_F(NcclTest, AGroupWhoseOtherRankNeverComesEnds) {
  for (const unsigned rank : {0U, 1U}) {
    const auto id = nccl_unique_id();
    ASSERT_TRUE(id.ok());
    const auto carrier =
        make_nccl_carrier({.id = *id, .rank = rank, .size = 2, .timeout_seconds = 2});
    ASSERT_EQ(carrier.status().code(), Code::kUnavailable) << carrier.status().to_string();
    EXPECT_NE(carrier.status().message().find("not all of the 2 ranks have come after 2.0 s"),
              std::string::npos)
        << carrier.status().message();
  }
  EXPECT_TRUE(alone());  // the GPU is as good as before
}

// NCCL sees that a receive of itself has no send. The group is of no use then, and the next one is.
TEST_F(NcclTest, AfterAFailureANewGroupCanBeMade) {
  auto carrier = alone();
  ASSERT_TRUE(carrier);
  Bytes into(1000, 7);
  const FromRank from{0, into};
  const Status status = carrier->exchange({}, {&from, 1}, 5);
  EXPECT_FALSE(status.ok());
  std::printf("a receive without a send: %s\n", status.to_string().c_str());
  EXPECT_EQ(carrier->broadcast(0, into, 1e6).code(), Code::kUnavailable);
  EXPECT_EQ(into, Bytes(1000, 7));
  carrier.reset();
  carrier = alone();
  ASSERT_TRUE(carrier);
  EXPECT_TRUE(carrier->broadcast(0, into, 60).ok());
}

// abort() of another thread comes before the call, here: nothing hangs with one rank.
TEST_F(NcclTest, AnAbortedGroupIsCancelled) {
  auto carrier = alone(1 << 20);
  ASSERT_TRUE(carrier);
  carrier->abort();
  Bytes out(50'000'000), in(out.size());
  const ToRank to{0, out};
  const FromRank from{0, in};
  const Status status = carrier->exchange({&to, 1}, {&from, 1}, 60);
  EXPECT_EQ(status.code(), Code::kCancelled) << status.to_string();
  EXPECT_TRUE(alone());
}

TEST_F(NcclTest, AGroupByTicket) {
  auto backend = find_backend("nccl");
  ASSERT_TRUE(backend.ok());
  auto gathering = (*backend)->open({.size = 1}, 10);
  ASSERT_TRUE(gathering.ok()) << gathering.status().to_string();
  EXPECT_EQ((*gathering)->ticket().size(), 256U);
  auto carrier = (*gathering)->finish(60);
  ASSERT_TRUE(carrier.ok()) << carrier.status().to_string();
}

// Two ranks on one GPU: NCCL refuses that, unless it is told not to (and knows how). Where it works
// a message crosses, and a rank that does not come is named.
TEST_F(NcclTest, TwoRanksOfOneGpu) {
  const auto enter = [this](unsigned rank) {
    return make_nccl_carrier({.id = id_, .rank = rank, .size = 2, .timeout_seconds = 30});
  };
  auto other = std::async(std::launch::async, enter, 1);
  auto first = enter(0);
  auto second = other.get();
  if (!first.ok() || !second.ok()) {
    EXPECT_FALSE(first.ok() || second.ok());
    GTEST_SKIP() << "NCCL refuses two ranks of one GPU: " << first.status().to_string();
  }
  const Bytes bytes = random_bytes(1'000'001, 5);
  Bytes into(bytes.size());
  auto received = std::async(std::launch::async, [&] {
    const FromRank from{0, into};
    return (*second)->exchange({}, {&from, 1}, 60);
  });
  const ToRank to{1, bytes};
  const Status sent = (*first)->exchange({&to, 1}, {}, 60);
  EXPECT_TRUE(sent.ok()) << sent.to_string();
  EXPECT_TRUE(received.get().ok());
  EXPECT_TRUE(into == bytes);
  const FromRank never{1, into};
  const Status late = (*first)->exchange({}, {&never, 1}, 2);
  EXPECT_EQ(late.code(), Code::kUnavailable) << late.to_string();
  EXPECT_EQ((*first)->lost(), std::vector<unsigned>{1});
}

// Numbers, not limits: what a rank alone moves through the buckets, and on the device.
TEST_F(NcclTest, BytesPerSecond) {
  const auto carrier = alone();
  ASSERT_TRUE(carrier);
  const size_t size = size_t{1} << 30;
  Bytes out(size, 1), in(size);
  const OnGpu there(out), into(in);
  for (int repeat = 0; repeat < 3; ++repeat) {
    const ToRank host_to{0, out}, device_to{0, there.span()};
    const FromRank host_from{0, in}, device_from{0, into.span()};
    double begin = steady_seconds();
    ASSERT_TRUE(carrier->exchange({&host_to, 1}, {&host_from, 1}, 60).ok());
    const double host = steady_seconds() - begin;
    begin = steady_seconds();
    ASSERT_TRUE(carrier->exchange({&device_to, 1}, {&device_from, 1}, 60).ok());
    const double device = steady_seconds() - begin;
    std::printf("1 GiB to itself: %.1f GB/s through the host's buckets, %.1f GB/s on the GPU\n",
                double(size) * 1e-9 / host, double(size) * 1e-9 / device);
  }
}

}  // namespace
}  // namespace deltawire
