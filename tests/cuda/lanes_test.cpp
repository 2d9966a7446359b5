// Lanes: how they divide memory and work, and what happens when one fails.
#include "device/lanes.h"

#include <atomic>
#include <mutex>
#include <set>
#include <thread>

#include "cuda/contexts.h"

namespace deltawire::cuda {
namespace {

TEST(SharedScratch, JoinsFreedPartsAgain) {
  std::vector<uint8_t> memory(10 * 256);
  SharedScratch room(memory);
  EXPECT_FALSE(room.try_take(0).has_room());
  EXPECT_FALSE(room.try_take(10 * 256 + 1).has_room());
  std::vector<SharedScratch::Part> parts;
  for (size_t i = 0; i < 10; ++i) {
    parts.push_back(room.try_take(1 + i * 20));  // rounded up to 256
    ASSERT_TRUE(parts.back().has_room());
    EXPECT_EQ(parts.back().memory().data(), memory.data() + i * 256);
  }
  EXPECT_FALSE(room.try_take(1).has_room());
  parts[3].give_back();
  parts[5].give_back();
  EXPECT_FALSE(room.try_take(257).has_room());
  parts[4].give_back();  // between two that are free
  {
    const SharedScratch::Part three = room.try_take(3 * 256);
    EXPECT_TRUE(three.has_room());
    EXPECT_EQ(three.memory().data(), memory.data() + 3 * 256);
  }
  parts.clear();
  EXPECT_TRUE(room.try_take(10 * 256).has_room());
}

TEST(SharedScratch, ThreadsWaitForTheirPart) {
  std::vector<uint8_t> memory(8 * 256);
  SharedScratch room(memory);
  ThreadPool pool(4);
  std::atomic<uint64_t> wrong{0};
  pool.parallel_for(2000, [&](size_t i, unsigned worker) {
    const SharedScratch::Part part = room.take((1 + i % 8) * 256);
    for (uint8_t& byte : part.memory()) byte = uint8_t(worker);
    std::this_thread::yield();
    for (const uint8_t byte : part.memory()) wrong += byte != worker ? 1 : 0;
  });
  EXPECT_EQ(wrong, 0);
  EXPECT_TRUE(room.try_take(8 * 256).has_room());
}

TEST(LaneSizes, StayWithinTheScratch) {
  for (const uint64_t scratch : {8 * kMiB, 8 * kMiB + 12345, 33 * kMiB, 64 * kMiB, 100 * kMiB + 1,
                                 256 * kMiB, 1000 * kMiB}) {
    for (const unsigned threads : {1U, 2U, 7U, 16U, 200U}) {
      const LaneSizes sizes = lane_sizes(scratch, threads);
      EXPECT_GE(sizes.num_lanes, 1);
      EXPECT_LE(sizes.memory(), scratch);
      EXPECT_GE(sizes.work, kMiB);
      EXPECT_GE(sizes.group, 4 * kMiB);
      EXPECT_LE(sizes.group, sizes.large);
      EXPECT_LE(sizes.large, sizes.stage);
      for (const uint64_t size : {sizes.stage, sizes.work, sizes.large}) EXPECT_EQ(size % 256, 0);
    }
  }
  EXPECT_GE(lane_sizes(256 * kMiB, 16).num_lanes, 4);
}

class LanesTest : public ::testing::Test {
 protected:
  static constexpr uint64_t kScratch = 96 * kMiB;
  static constexpr uint64_t kElements = 2'000'000;  // of two bytes

  void SetUp() override {
    SKIP_WITHOUT_GPU();
    lanes_ = std::make_unique<Lanes>(good(current_device()), kScratch, 8);
    memory_ = good(Buffer::allocate(Place::kDevice, lanes_->sizes().memory()));
    host_ = good(Buffer::allocate(Place::kPinned, kNum * kElements * 2));
    for (size_t i = 0; i < kNum; ++i) {
      uint8_t* const data = host_.data() + i * kElements * 2;
      std::memset(data, int(i), kElements * 2);
      pairs_.push_back({layout_of(DType::kBF16), data, data, kElements});
    }
  }

  Status run(const Lanes::Encode& encode) {
    return lanes_->for_each_group(pairs_, memory_.data(), nullptr, encode);
  }

  // Whether the old array of a pair starts and ends with this number.
  static bool holds(const DevicePair& pair, size_t number) {
    const auto* const data = static_cast<const uint8_t*>(pair.old_data);
    uint8_t first = 0, last = 0;
    EXPECT_TRUE(copy(&first, data, 1, nullptr).ok());
    EXPECT_TRUE(copy(&last, data + 2 * pair.num_elements - 1, 1, nullptr).ok());
    EXPECT_TRUE(wait(nullptr).ok());
    return first == uint8_t(number) && last == uint8_t(number);
  }

  static constexpr size_t kNum = 60;
  std::unique_ptr<Lanes> lanes_;
  Buffer memory_, host_;
  std::vector<DevicePair> pairs_;
};

TEST_F(LanesTest, EveryPairIsProcessedOnceFromTheStage) {
  for (unsigned round = 0; round < 3; ++round) {
    std::mutex mutex;
    std::vector<unsigned> seen(kNum);
    std::set<const Workspace*> used;
    ASSERT_GOOD(run([&](const Lane& lane, size_t first, std::span<const DevicePair> pairs,
                        Stream stream) -> Status {
      EXPECT_TRUE(lane.within_scratch);
      EXPECT_NE(stream, nullptr);
      DW_ASSIGN_OR_RETURN(const uint8_t* const scratch,
                          lane.workspace->get(Workspace::kSlots, lane.scratch_bytes));
      const std::lock_guard lock(mutex);
      used.insert(lane.workspace);
      EXPECT_GE(scratch, memory_.data());
      EXPECT_LE(scratch + lane.scratch_bytes, memory_.data() + memory_.size());
      for (size_t k = 0; k < pairs.size(); ++k) {
        ++seen[first + k];
        const auto* const old_data = static_cast<const uint8_t*>(pairs[k].old_data);
        EXPECT_TRUE(old_data >= memory_.data() && old_data < memory_.data() + memory_.size());
        EXPECT_TRUE(holds(pairs[k], first + k)) << first + k;
      }
      return {};
    }));
    for (const unsigned times : seen) EXPECT_EQ(times, 1);
    EXPECT_LE(used.size(), lanes_->sizes().num_lanes);
    EXPECT_EQ(lanes_->device_bytes(), 0);
  }
}

TEST_F(LanesTest, ReportsTheFirstOfSeveralFailures) {
  for (unsigned round = 0; round < 20; ++round) {
    const Status status =
        run([&](const Lane&, size_t first, std::span<const DevicePair> pairs, Stream) -> Status {
          if (first + pairs.size() <= 20) return {};
          if (first <= 20) std::this_thread::sleep_for(std::chrono::milliseconds(2));
          return corruption("from " + std::to_string(first));
        });
    EXPECT_EQ(status.code(), Code::kCorruption);
    // The group that contains 20.
    const size_t per_group = lanes_->sizes().group / (kElements * 2 + 128);
    EXPECT_TRUE(mentions(status, "from " + std::to_string(20 / per_group * per_group)))
        << status.to_string();
    EXPECT_TRUE(mentions(status, "arrays ")) << status.to_string();
  }
  ASSERT_GOOD(
      run([](const Lane&, size_t, std::span<const DevicePair>, Stream) -> Status { return {}; }));
}

TEST_F(LanesTest, ExceptionBecomesOutOfMemoryWithoutHanging) {
  const Status status = run([](const Lane&, size_t, std::span<const DevicePair>, Stream) -> Status {
    throw std::bad_alloc();
  });
  EXPECT_EQ(status.code(), Code::kOutOfMemory) << status.to_string();
}

TEST_F(LanesTest, RetriesAGroupWithMoreScratch) {
  std::mutex mutex;
  std::vector<unsigned> done(kNum);
  ASSERT_GOOD(
      run([&](const Lane& lane, size_t first, std::span<const DevicePair> pairs, Stream) -> Status {
        if (lane.within_scratch) return out_of_memory("too little");
        EXPECT_EQ(lane.scratch_bytes, lanes_->sizes().large);
        DW_ASSIGN_OR_RETURN(uint8_t* const scratch,
                            lane.workspace->get(Workspace::kSlots, lane.scratch_bytes));
        const std::lock_guard lock(mutex);
        EXPECT_GE(scratch, memory_.data());
        EXPECT_LE(scratch + lane.scratch_bytes, memory_.data() + lanes_->sizes().stage);
        for (size_t k = 0; k < pairs.size(); ++k) {
          ++done[first + k];
          EXPECT_EQ(pairs[k].old_data, pairs_[first + k].old_data);  // it is read where it is
        }
        return {};
      }));
  for (const unsigned times : done) EXPECT_EQ(times, 1);
}

TEST_F(LanesTest, ReadsArraysLargerThanTheStageInPlace) {
  DevicePair all = pairs_[0];
  all.num_elements = kNum * kElements;
  const std::vector<DevicePair> pairs = {pairs_[3], all, pairs_[4]};
  unsigned large = 0;
  std::mutex mutex;
  ASSERT_GOOD(lanes_->for_each_group(
      pairs, memory_.data(), nullptr,
      [&](const Lane& lane, size_t first, std::span<const DevicePair> group, Stream) -> Status {
        const std::lock_guard lock(mutex);
        if (first != 1) return {};
        ++large;
        EXPECT_EQ(group.size(), 1);
        EXPECT_EQ(group[0].old_data, all.old_data);
        EXPECT_EQ(lane.scratch_bytes, lanes_->sizes().large);
        EXPECT_FALSE(lane.within_scratch);
        return {};
      }));
  EXPECT_EQ(large, 1);
}

}  // namespace
}  // namespace deltawire::cuda
