// DeviceSnapshot, on the device and in pinned memory.
#include "cuda/contexts.h"
#include "device/context.h"

namespace deltawire::cuda {
namespace {

using Placement = DeviceSnapshot::Placement;
using Slot = DeviceSnapshot::Slot;

class SnapshotTest : public ::testing::TestWithParam<Placement> {
 protected:
  void SetUp() override { SKIP_WITHOUT_GPU(); }
};

std::vector<uint8_t> bytes_of(const DeviceSnapshot& snapshot, Slot slot, size_t size) {
  std::vector<uint8_t> bytes(size);
  const Status status = snapshot.read(slot, 0, bytes, nullptr);
  EXPECT_TRUE(status.ok()) << status.to_string();
  return bytes;
}

// Arrays, the slots that hold their old state, and what changes them.
struct Held {
  std::vector<BothSides> arrays;
  std::vector<Slot> slots;
  std::vector<DeviceSnapshot::Change> changes;

  void add(DeviceSnapshot& snapshot, HostPair pair) {
    arrays.emplace_back(std::move(pair));
    const BothSides& array = arrays.back();
    slots.push_back(good(snapshot.add(
        Contents{{array.dtype, array.old_array.data()}, array.dtype, array.size()}, nullptr)));
    changes.push_back({slots.back(), array.after()});
  }

  void expect_coded(const std::vector<Coded>& coded) const {
    ASSERT_EQ(coded.size(), arrays.size());
    for (size_t i = 0; i < arrays.size(); ++i) {
      ASSERT_TRUE(coded[i].payload ==
                  cpu_encode(coded[i].codec, arrays[i].dtype, arrays[i].host).payload)
          << i << " " << coded[i].codec;
    }
  }
  std::vector<DeviceSnapshot::Step> steps(const std::vector<Coded>& coded) const {
    std::vector<DeviceSnapshot::Step> steps;
    for (size_t i = 0; i < slots.size(); ++i) {
      steps.push_back({slots[i], coded[i].codec, coded[i].payload});
    }
    return steps;
  }
};

TEST_P(SnapshotTest, EncodesAndAdvances) {
  for (const uint64_t scratch : {8 * kMiB, 256 * kMiB}) {
    Context context = make_context(scratch);
    DeviceSnapshot snapshot(&context, GetParam());
    Held held;
    for (const unsigned width : {1U, 2U, 4U, 8U}) {
      for (const size_t n : {0, 1, 1000, 300'000, 1'500'000}) {
        held.add(snapshot, make_pair(n + width, width, n, n == 1000 ? 1.0 : 0.01));
      }
    }
    for (size_t i = 0; i < 20; ++i) held.add(snapshot, make_pair(i, 2, 290'000 + i, 0.02));
    for (const char* codec : {"auto", "tight", "gaps", "adaptive", "raw"}) {
      const auto coded = snapshot.encode(codec, held.changes, nullptr);
      ASSERT_TRUE(coded.ok()) << codec << ": " << coded.status().to_string();
      held.expect_coded(*coded);
      // Only advance() changes a snapshot.
      for (size_t i = 0; i < held.arrays.size(); ++i) {
        const HostPair& host = held.arrays[i].host;
        ASSERT_TRUE(bytes_of(snapshot, held.slots[i], host.old_bytes.size()) == host.old_bytes);
      }
      ASSERT_GOOD(snapshot.advance(held.steps(*coded), nullptr));
      const auto digests = snapshot.digests(held.slots, nullptr);
      ASSERT_TRUE(digests.ok()) << digests.status().to_string();
      for (size_t i = 0; i < held.arrays.size(); ++i) {
        const HostPair& host = held.arrays[i].host;
        ASSERT_TRUE(bytes_of(snapshot, held.slots[i], host.new_bytes.size()) == host.new_bytes)
            << codec << " " << i;
        ASSERT_EQ((*digests)[i], digest_of(DigestKind::kSum128, host.new_bytes)) << i;
      }
      const auto again = snapshot.encode("auto", held.changes, nullptr);
      ASSERT_TRUE(again.ok()) << again.status().to_string();
      for (const Coded& one : *again) EXPECT_EQ(one.num_changed, 0);
      // Back to the old state, for the next codec.
      for (size_t i = 0; i < held.arrays.size(); ++i) {
        snapshot.remove(held.slots[i]);
        held.slots[i] = good(snapshot.add(held.arrays[i].host.old_bytes, held.arrays[i].dtype));
        held.changes[i].slot = held.slots[i];
      }
    }
  }
}

// Pairs with copies in many slots: the CPU's payload of each pair is computed once.
struct Copies {
  std::vector<BothSides> arrays;
  std::vector<DeviceSnapshot::Change> changes;
  std::vector<size_t> of;  // the array of each change

  void add(DeviceSnapshot& snapshot, HostPair pair, size_t count) {
    arrays.emplace_back(std::move(pair));
    const BothSides& array = arrays.back();
    for (size_t i = 0; i < count; ++i) {
      changes.push_back({good(snapshot.add(array.host.old_bytes, array.dtype)), array.after()});
      of.push_back(arrays.size() - 1);
    }
  }

  void expect_coded(std::string_view codec, const std::vector<Coded>& coded) const {
    std::vector<Encoded> expected;
    for (const BothSides& array : arrays) {
      expected.push_back(cpu_encode(codec, array.dtype, array.host));
    }
    ASSERT_EQ(coded.size(), changes.size());
    for (size_t i = 0; i < coded.size(); ++i) {
      ASSERT_EQ(coded[i].codec, codec);
      ASSERT_EQ(coded[i].num_changed, expected[of[i]].num_changed) << i;
      ASSERT_TRUE(coded[i].payload == expected[of[i]].payload) << codec << " " << i;
    }
  }
};

TEST_P(SnapshotTest, HandlesManySlotsOfAllWidthsAndSizes) {
  Context context = make_context(192 * kMiB);
  DeviceSnapshot snapshot(&context, GetParam());
  Copies copies;
  for (const unsigned width : {1U, 2U, 4U, 8U}) {
    copies.add(snapshot, make_pair(width, width, 900, 0.1), 100);
    copies.add(snapshot, make_pair(width, width, 270'000 + width, 0.01), 40);
    copies.add(snapshot, make_pair(width, width, 1'100'000, 0.005), 10);
    copies.add(snapshot, make_pair(width, width, 600'000, 0.9), 3);  // more than a lane's room
  }
  for (const char* codec : {"tight", "gaps", "adaptive", "gaps"}) {
    const auto coded = snapshot.encode(codec, copies.changes, nullptr);
    ASSERT_TRUE(coded.ok()) << codec << ": " << coded.status().to_string();
    copies.expect_coded(codec, *coded);
  }
}

TEST_P(SnapshotTest, HandlesASlotLargerThanAllStages) {
  Context context = make_context(64 * kMiB);
  DeviceSnapshot snapshot(&context, GetParam());
  Copies copies;
  copies.add(snapshot, make_pair(1, 2, 500'000, 0.01), 20);
  copies.add(snapshot, make_pair(2, 8, 9'000'000, 0.01, Content::kNoise), 1);  // than the scratch
  copies.add(snapshot, make_pair(3, 4, 10'000'000, 0.02, Content::kNoise),
             1);  // than half the stage
  copies.add(snapshot, make_pair(4, 2, 500'000, 0.01), 20);
  copies.add(snapshot, make_pair(5, 8, 6'000'000, 0.5, Content::kNoise), 1);  // and dense
  for (const char* codec : {"gaps", "tight"}) {
    const auto coded = snapshot.encode(codec, copies.changes, nullptr);
    ASSERT_TRUE(coded.ok()) << codec << ": " << coded.status().to_string();
    copies.expect_coded(codec, *coded);
  }
}

// All operations of a context share one scratch, as in a publisher.
TEST_P(SnapshotTest, OtherCallsMayComeInBetween) {
  Context context = make_context(64 * kMiB);
  DeviceSnapshot snapshot(&context, GetParam());
  Held held;
  for (size_t i = 0; i < 30; ++i) held.add(snapshot, make_pair(i, 2, 400'000 + i, 0.01));
  std::vector<Contents> contents;
  for (const BothSides& array : held.arrays) {
    contents.push_back({array.after(), array.dtype, array.size()});
  }
  for (unsigned round = 0; round < 3; ++round) {
    const std::vector<Coded> coded = good(snapshot.encode("auto", held.changes, nullptr));
    held.expect_coded(coded);
    const auto digests = good(context.digests(contents, nullptr));
    for (size_t i = 0; i < held.arrays.size(); ++i) {
      ASSERT_EQ(digests[i], digest_of(DigestKind::kSum128, held.arrays[i].host.new_bytes));
    }
    ASSERT_GOOD(context.apply(patches_of(held.arrays, coded), nullptr));
    for (BothSides& array : held.arrays) {
      ASSERT_TRUE(array.old_array.fetch() == array.host.new_bytes);
      array.old_array = OnDevice(array.host.old_bytes);
    }
    const Context::Impl& impl = ContextInternals::of(context);
    const uint64_t in_lanes = impl.lanes == nullptr ? 0 : impl.lanes->device_bytes();
    EXPECT_LE(impl.workspace.device_bytes() + in_lanes, 80 * kMiB);  // and some tables
  }
}

// Of any size, aligned or not, rounded while they are copied.
TEST_P(SnapshotTest, CopiesArraysIntoSlots) {
  Context context = make_context(8 * kMiB);
  DeviceSnapshot snapshot(&context, GetParam());
  std::vector<OnDevice> arrays;
  std::vector<std::vector<uint8_t>> expected;
  std::vector<Slot> slots;
  std::vector<DeviceSnapshot::Change> changes;
  const auto add = [&](const std::vector<uint8_t>& bytes, DType dtype, DType as, size_t skew,
                       std::vector<uint8_t> rounded) {
    arrays.emplace_back(bytes, skew);
    slots.push_back(good(snapshot.add(std::vector<uint8_t>(rounded.size(), 0xee), as)));
    changes.push_back({slots.back(), {dtype, arrays.back().data()}});
    expected.push_back(std::move(rounded));
  };
  for (const size_t skew : {0, 1, 8, 16}) {
    for (const size_t size : {0, 1, 7, 8, 511, 512, 8191, 131'072, 131'073, 1'000'003}) {
      const std::vector<uint8_t> bytes = make_pair(size, 1, size, 0, Content::kNoise).old_bytes;
      add(bytes, DType::kU8, DType::kU8, skew, bytes);
    }
  }
  for (const DType dtype : {DType::kF32, DType::kF16}) {
    for (const size_t n : {1, 4097, 200'001}) {
      const WideFloats floats = make_wide(n, dtype, n);
      add(floats.wide, dtype, DType::kBF16, 0, floats.rounded);
    }
  }
  const auto digests = snapshot.replace(changes, nullptr);
  if (GetParam() == Placement::kPinned) {
    EXPECT_EQ(digests.status().code(), Code::kUnsupported);
    return;
  }
  ASSERT_TRUE(digests.ok()) << digests.status().to_string();
  for (size_t i = 0; i < slots.size(); ++i) {
    ASSERT_TRUE(bytes_of(snapshot, slots[i], expected[i].size()) == expected[i]) << i;
    ASSERT_EQ((*digests)[i], digest_of(DigestKind::kSum128, expected[i])) << i;
  }
}

TEST_P(SnapshotTest, ComparesWiderFloatsAsBf16) {
  Context context = make_context(8 * kMiB);
  DeviceSnapshot snapshot(&context, GetParam());
  for (const DType dtype : {DType::kF32, DType::kF16}) {
    const size_t n = 5'000'000;
    const WideFloats before = make_wide(1, dtype, n);
    WideFloats after = make_wide(2, dtype, n);
    const size_t width = dtype == DType::kF32 ? 4 : 2;
    for (size_t i = 0; i < n; ++i) {  // one in fifty is new
      if (i % 50 == 0) continue;
      std::memcpy(&after.wide[i * width], &before.wide[i * width], width);
      std::memcpy(&after.rounded[i * 2], &before.rounded[i * 2], 2);
    }
    const OnDevice old_wide(before.wide), new_wide(after.wide);
    const Slot slot =
        good(snapshot.add(Contents{{dtype, old_wide.data()}, DType::kBF16, 2 * n}, nullptr));
    ASSERT_TRUE(bytes_of(snapshot, slot, 2 * n) == before.rounded);
    const DeviceSnapshot::Change change{slot, {dtype, new_wide.data()}};
    const auto coded = snapshot.encode("auto", {&change, 1}, nullptr);
    ASSERT_TRUE(coded.ok()) << coded.status().to_string();
    const HostPair host{2, before.rounded, after.rounded};
    const Coded& one = (*coded)[0];
    ASSERT_TRUE(one.payload == cpu_encode(one.codec, DType::kBF16, host).payload) << one.codec;
    const DeviceSnapshot::Step step{slot, one.codec, one.payload};
    ASSERT_GOOD(snapshot.advance({&step, 1}, nullptr));
    ASSERT_TRUE(bytes_of(snapshot, slot, 2 * n) == after.rounded);
    snapshot.remove(slot);
  }
}

TEST_P(SnapshotTest, DamagedStepIsCorruption) {
  Context context = make_context();
  DeviceSnapshot snapshot(&context, GetParam());
  Held held;
  for (size_t i = 0; i < 3; ++i) held.add(snapshot, make_pair(i, 2, 300'000, 0.01));
  for (const char* codec : {"tight", "gaps", "raw"}) {
    std::vector<Coded> coded = good(snapshot.encode(codec, held.changes, nullptr));
    coded[2].payload.pop_back();
    const Status status = snapshot.advance(held.steps(coded), nullptr);
    EXPECT_EQ(status.code(), Code::kCorruption) << status.to_string();
    for (size_t i = 0; i < 3; ++i) {
      snapshot.remove(held.slots[i]);
      held.slots[i] = good(snapshot.add(held.arrays[i].host.old_bytes, DType::kBF16));
      held.changes[i].slot = held.slots[i];
    }
  }
}

TEST_P(SnapshotTest, MemoryIsCountedReusedAndReleased) {
  Context context = make_context();
  DeviceSnapshot snapshot(&context, GetParam());
  const auto held = [&] { return snapshot.device_bytes() + snapshot.host_bytes(); };
  EXPECT_EQ(held(), 0);
  const std::vector<uint8_t> bytes(1'000'000, 7);
  std::vector<Slot> slots;
  for (size_t i = 0; i < 40; ++i) slots.push_back(good(snapshot.add(bytes, DType::kU8)));
  const uint64_t before = held();
  EXPECT_GE(before, 40'000'000);
  EXPECT_LE(before, 80'000'000);
  EXPECT_EQ(GetParam() == Placement::kDevice, snapshot.device_bytes() > 0);
  for (size_t i = 0; i < 10; ++i) {
    snapshot.remove(slots[i]);
    slots[i] = good(snapshot.add(bytes, DType::kU8));
  }
  EXPECT_EQ(held(), before);
  const Slot large = good(snapshot.add(std::vector<uint8_t>(100'000'000, 3), DType::kU8));
  EXPECT_GE(held(), before + 100'000'000);
  snapshot.remove(large);
  EXPECT_EQ(held(), before);
  for (const Slot slot : slots) {
    ASSERT_TRUE(bytes_of(snapshot, slot, bytes.size()) == bytes);
    snapshot.remove(slot);
  }
  EXPECT_EQ(held(), 0);
  snapshot.remove(slots[0]);  // no harm
}

TEST_P(SnapshotTest, ErrorsNameTheMistake) {
  Context context = make_context();
  DeviceSnapshot snapshot(&context, GetParam());
  const DeviceSnapshot::Change change{3, {DType::kBF16, nullptr}};
  const Status status = snapshot.encode("tight", {&change, 1}, nullptr).status();
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_TRUE(mentions(status, "change 0: slot 3")) << status.to_string();
  const DeviceSnapshot::Step step{3, "tight", {}};
  EXPECT_EQ(snapshot.advance({&step, 1}, nullptr).code(), Code::kInvalidArgument);
  std::vector<uint8_t> out(1);
  EXPECT_EQ(snapshot.read(3, 0, out, nullptr).code(), Code::kInvalidArgument);
}

INSTANTIATE_TEST_SUITE_P(Both, SnapshotTest,
                         ::testing::Values(Placement::kDevice, Placement::kPinned),
                         [](const auto& param) {
                           return param.param == Placement::kDevice ? "Device" : "Pinned";
                         });

}  // namespace
}  // namespace deltawire::cuda
