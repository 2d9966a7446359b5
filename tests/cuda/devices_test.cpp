// A context uses its own device, whichever device the callers' threads use, if any.
#include <cuda_runtime_api.h>

#include <thread>

#include "cuda/contexts.h"
#include "device/context.h"

namespace deltawire::cuda {
namespace {

std::vector<BothSides> make_arrays(uint64_t seed) {
  std::vector<BothSides> arrays;
  for (const unsigned width : {1U, 2U, 4U, 8U}) {
    for (const size_t n : {1000, 300'000}) {
      arrays.emplace_back(make_trained_pair(seed + n, width, n, 0.02));
    }
  }
  for (size_t i = 0; i < 9; ++i) arrays.emplace_back(make_pair(seed + i, 2, 280'000, 0.02));
  return arrays;
}

std::vector<Digest> cpu_digests(const std::vector<BothSides>& arrays) {
  std::vector<Digest> digests;
  for (const BothSides& array : arrays) {
    digests.push_back(digest_of(DigestKind::kSum128, array.host.new_bytes));
  }
  return digests;
}

void expect_snapshot(Context& context, const std::vector<BothSides>& arrays,
                     DeviceSnapshot::Placement placement) {
  DeviceSnapshot snapshot(&context, placement);
  std::vector<DeviceSnapshot::Slot> slots;
  std::vector<DeviceSnapshot::Change> changes;
  for (const BothSides& array : arrays) {
    slots.push_back(good(snapshot.add(
        Contents{{array.dtype, array.old_array.data()}, array.dtype, array.size()}, nullptr)));
    changes.push_back({slots.back(), array.after()});
  }
  const std::vector<Coded> coded = good(snapshot.encode("tight", changes, nullptr));
  ASSERT_EQ(coded.size(), arrays.size());
  std::vector<DeviceSnapshot::Step> steps;
  for (size_t i = 0; i < arrays.size(); ++i) {
    steps.push_back({slots[i], coded[i].codec, coded[i].payload});
  }
  ASSERT_GOOD(snapshot.advance(steps, nullptr));
  EXPECT_EQ(good(snapshot.digests(slots, nullptr)), cpu_digests(arrays));
  std::vector<uint8_t> bytes(arrays.back().size());
  ASSERT_GOOD(snapshot.read(slots.back(), 0, bytes, nullptr));
  EXPECT_TRUE(bytes == arrays.back().host.new_bytes);
}

// The operations of a publisher and a replica, all on the context's device. Patches the arrays.
void expect_everything(Context& context, const std::vector<BothSides>& arrays, Stream stream) {
  for (const char* codec : {"gaps", "tight", "exponents"}) {
    const auto coded = context.encode(codec, pairs_of(arrays), stream);
    ASSERT_TRUE(coded.ok()) << codec << ": " << coded.status().to_string();
    for (size_t i = 0; i < arrays.size(); ++i) {
      ASSERT_TRUE((*coded)[i].payload == cpu_encode(codec, arrays[i].dtype, arrays[i].host).payload)
          << codec << " " << i;
    }
    ASSERT_GOOD(context.check(patches_of(arrays, *coded), stream));
  }
  for (const auto placement :
       {DeviceSnapshot::Placement::kDevice, DeviceSnapshot::Placement::kPinned}) {
    ASSERT_NO_FATAL_FAILURE(expect_snapshot(context, arrays, placement));
  }
  const BothSides& last = arrays.back();
  const std::vector<Coded> coded = good(context.encode("tight", pairs_of(arrays), stream));
  ASSERT_GOOD(context.apply(patches_of(arrays, coded), stream));
  std::vector<Contents> contents;
  for (const BothSides& array : arrays) {
    contents.push_back({{array.dtype, array.old_array.data()}, array.dtype, array.size()});
  }
  EXPECT_EQ(good(context.digests(contents, stream)), cpu_digests(arrays));
  std::vector<uint8_t> bytes(last.size());
  ASSERT_GOOD(context.fetch(contents.back(), 0, bytes, stream));
  EXPECT_TRUE(bytes == last.host.new_bytes);
}

TEST(DevicesTest, WorksOnASecondDevice) {
  SKIP_WITHOUT_GPU();
  int count = 0;
  ASSERT_EQ(cudaGetDeviceCount(&count), cudaSuccess);
  if (count < 2) GTEST_SKIP() << "skipped: one GPU";
  ASSERT_EQ(good(current_device()), 0);
  std::unique_ptr<Context> context;
  std::vector<BothSides> arrays, again;
  {
    const UseDevice use(1);
    context = std::make_unique<Context>(make_context(16 * kMiB));
    arrays = make_arrays(1);
    again = make_arrays(2);
  }
  ASSERT_EQ(good(current_device()), 0);
  ContextOptions options;
  options.beside = arrays[0].old_array.data();
  EXPECT_EQ(ContextInternals::of(Context::create(options).value()).device, 1);
  for (const BothSides& array : arrays) {
    cudaPointerAttributes where{};
    ASSERT_EQ(cudaPointerGetAttributes(&where, array.old_array.data()), cudaSuccess);
    ASSERT_EQ(where.device, 1);
  }
  const std::vector<BothSides> on_first = make_arrays(3);
  Context first = make_context(16 * kMiB);
  ASSERT_NO_FATAL_FAILURE(expect_everything(*context, arrays, nullptr));
  EXPECT_EQ(good(current_device()), 0);
  // Both at once, each from a thread that uses the other's device.
  std::thread other([&] {
    const UseDevice use(1);
    expect_everything(first, on_first, nullptr);
  });
  expect_everything(*context, again, nullptr);
  other.join();
  EXPECT_EQ(good(current_device()), 0);
}

TEST(DevicesTest, ContextUsesTheDeviceOfItsMemory) {
  SKIP_WITHOUT_GPU();
  const int in_use = good(current_device());
  const Buffer there = good(Buffer::allocate(Place::kDevice, 1000));
  const Buffer pinned = good(Buffer::allocate(Place::kPinned, 1000));
  const std::vector<uint8_t> here(1000);
  EXPECT_EQ(device_of(there.data() + 7), in_use);
  EXPECT_EQ(device_of(pinned.data()), std::nullopt);
  EXPECT_EQ(device_of(here.data()), std::nullopt);
  EXPECT_EQ(device_of(nullptr), std::nullopt);
  ContextOptions options;
  for (const uint8_t* const memory : {static_cast<const uint8_t*>(there.data()), here.data()}) {
    options.beside = memory;
    EXPECT_EQ(ContextInternals::of(Context::create(options).value()).device, in_use);
  }
}

TEST(DevicesTest, ContextWorksInOtherThreads) {
  SKIP_WITHOUT_GPU();
  std::unique_ptr<Context> context;
  std::vector<BothSides> arrays;
  std::thread([&] {
    context = std::make_unique<Context>(make_context(16 * kMiB));
    arrays = make_arrays(1);
  }).join();
  // A thread that has not used a device yet.
  std::thread([&] { expect_everything(*context, arrays, nullptr); }).join();
  std::thread([&] { context.reset(); }).join();
}

TEST(DevicesTest, ContextsInSeveralThreadsAreIndependent) {
  SKIP_WITHOUT_GPU();
  std::vector<std::thread> threads;
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    threads.emplace_back([seed] {
      Context context = make_context(16 * kMiB);
      cudaStream_t stream = nullptr;
      ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
      expect_everything(context, make_arrays(10 * seed), stream);
      ASSERT_EQ(cudaStreamDestroy(stream), cudaSuccess);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace deltawire::cuda
