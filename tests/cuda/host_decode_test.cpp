// Payloads that the host decodes onto arrays of a GPU: once, during the check, and written by the
// device.
#include "cuda/packed_pairs.h"
#include "device/context.h"

namespace deltawire::cuda {
namespace {

// ---- kept results, which need no GPU

TEST(CheckedPatchesTest, AreFoundOnceByTheirOwnPatch) {
  std::vector<uint8_t> memory(64), payload(32);
  const Patch patch{{DType::kI32, memory.data(), 40}, "adaptive", Bytes(payload).first(9)};
  CheckedPatches checked(CheckedPatches::kMostBytes);
  const auto keep = [&] { checked.keep(patch, {true, std::vector<uint8_t>(100, 7)}); };
  keep();
  EXPECT_EQ(checked.size_bytes(), 100);
  keep();  // a second one of the same patch is not needed
  EXPECT_EQ(checked.size_bytes(), 100);
  std::vector<Patch> others(7, patch);
  others[0].array.data = memory.data() + 4;
  others[1].array.size_bytes = 44;
  others[2].array.dtype = DType::kU32;
  others[3].codec = "gaps";
  others[4].payload = Bytes(payload).first(10);
  others[5].payload = Bytes(payload).subspan(1, 9);
  others[6].payload = {};
  for (const Patch& other : others) EXPECT_FALSE(checked.take(other).has_value());
  const std::optional<DecodedPatch> found = checked.take(patch);
  ASSERT_TRUE(found.has_value());
  EXPECT_TRUE(found->whole);
  EXPECT_TRUE(found->bytes == std::vector<uint8_t>(100, 7));
  EXPECT_EQ(checked.size_bytes(), 0);
  EXPECT_FALSE(checked.take(patch).has_value());
  keep();
  checked.clear();
  EXPECT_EQ(checked.size_bytes(), 0);
  EXPECT_FALSE(checked.take(patch).has_value());
}

TEST(CheckedPatchesTest, OversizedResultsAreNotKept) {
  std::vector<uint8_t> memory(64);
  const auto patch = [&](size_t i) {
    return Patch{{DType::kU8, memory.data() + i, 1}, "adaptive", Bytes(memory)};
  };
  CheckedPatches checked(250);
  for (size_t i = 0; i < 3; ++i) checked.keep(patch(i), {false, std::vector<uint8_t>(100)});
  EXPECT_EQ(checked.size_bytes(), 200);
  checked.keep(patch(3), {false, std::vector<uint8_t>(50)});
  EXPECT_EQ(checked.size_bytes(), 250);
  checked.keep(patch(4), {});  // nothing changes: that takes none
  for (const size_t i : {0, 1, 3, 4}) EXPECT_TRUE(checked.take(patch(i)).has_value()) << i;
  EXPECT_FALSE(checked.take(patch(2)).has_value());
}

// ---- on a GPU

constexpr const char* kCodec = "adaptive";

class HostDecodeTest : public ::testing::Test {
 protected:
  void SetUp() override {
    SKIP_WITHOUT_GPU();
    uint64_t seed = 0;
    for (const unsigned width : {1U, 2U, 4U, 8U}) {
      for (const size_t n : {1, 5000, 700'001}) {
        arrays_.push_back(packed_sides(++seed, width, n, 300));
        arrays_.emplace_back(make_pair(++seed, width, n, 0.001), n == 5000 ? 3 : 0);
      }
      // So many changes that the whole array is written.
      arrays_.emplace_back(make_pair(++seed, width, 100'000, 0.9, Content::kNoise));
    }
    // Small steps close together: many changes in few bytes, in a fifth of an array and in all of
    // it.
    for (const size_t part : {5, 1}) {
      HostPair pair = make_pair(part, 4, 400'000, 0);
      for (size_t i = 0; i < pair.new_bytes.size() / part; i += 4) pair.new_bytes[i] ^= 1;
      arrays_.emplace_back(std::move(pair));
    }
    // An unchanged array, and an empty one.
    arrays_.emplace_back(make_pair(2, 2, 10'000, 0));
    arrays_.emplace_back(make_pair(2, 2, 0, 0));
    for (const BothSides& array : arrays_) {
      Encoded encoded = cpu_encode(kCodec, array.dtype, array.host);
      coded_.push_back({kCodec, std::move(encoded.payload), encoded.num_changed});
    }
  }

  std::vector<Patch> patches() const { return patches_of(arrays_, coded_); }
  void expect_old() const {
    for (size_t i = 0; i < arrays_.size(); ++i) {
      ASSERT_TRUE(arrays_[i].old_array.fetch() == arrays_[i].host.old_bytes) << "array " << i;
    }
  }
  void expect_new() const {
    for (size_t i = 0; i < arrays_.size(); ++i) {
      ASSERT_TRUE(arrays_[i].old_array.fetch() == arrays_[i].host.new_bytes) << "array " << i;
    }
  }
  void make_old_again() {
    for (const BothSides& array : arrays_) {
      ASSERT_GOOD(copy(array.old_array.data(), array.host.old_bytes.data(), array.size(), nullptr));
    }
    ASSERT_GOOD(wait(nullptr));
  }

  std::vector<BothSides> arrays_;
  std::vector<Coded> coded_;
};

TEST_F(HostDecodeTest, WritesLikeTheCpu) {
  for (const uint64_t scratch : {8 * kMiB, 256 * kMiB}) {
    Context context = make_context(scratch);
    ASSERT_GOOD(context.check(patches(), nullptr));
    expect_old();
    ASSERT_GOOD(context.apply(patches(), nullptr));
    expect_new();
    make_old_again();
    ASSERT_GOOD(context.check(patches(), nullptr));
    std::vector<std::optional<Digest>> digests;
    ASSERT_GOOD(context.apply_checked(patches(), nullptr, &digests));
    EXPECT_EQ(digests.size(), arrays_.size());
    expect_new();
    make_old_again();
    ASSERT_GOOD(context.apply_checked(patches(), nullptr));  // what was kept is used up
    expect_new();
    make_old_again();
  }
}

TEST_F(HostDecodeTest, DoesNotDecodeTwice) {
  Context context = make_context();
  ASSERT_GOOD(context.check(patches(), nullptr));
  EXPECT_GT(ContextInternals::of(context).checked.size_bytes(), 0);
  for (Coded& one : coded_) std::fill(one.payload.begin(), one.payload.end(), uint8_t(0xee));
  ASSERT_GOOD(context.apply_checked(patches(), nullptr));
  expect_new();
  EXPECT_EQ(ContextInternals::of(context).checked.size_bytes(), 0);
}

// Results are those of the last check only, and of arrays that were not written since.
TEST_F(HostDecodeTest, ForgetsResultsOfAnEarlierCheck) {
  Context context = make_context();
  const BothSides other(make_pair(5, 2, 20'000, 0.01));
  const Encoded encoded = cpu_encode(kCodec, other.dtype, other.host);
  const Patch of_other{other.before(), kCodec, encoded.payload};
  std::vector<uint8_t> damaged = encoded.payload;
  damaged.pop_back();
  const Patch of_damaged{other.before(), kCodec, damaged};
  const std::vector<std::function<void()>> between = {
      [&] {
        ASSERT_GOOD(context.check({&of_other, 1}, nullptr));
      },
      [&] {
        EXPECT_EQ(context.check({&of_damaged, 1}, nullptr).code(), Code::kCorruption);
      },
      [&] {
        ASSERT_GOOD(context.apply({&of_other, 1}, nullptr));
      },
  };
  const auto reset = [&] {
    ASSERT_GOOD(copy(other.old_array.data(), other.host.old_bytes.data(), other.size(), nullptr));
    make_old_again();
  };
  for (size_t k = 0; k < between.size(); ++k) {
    SCOPED_TRACE(k);
    ASSERT_GOOD(context.check(patches(), nullptr));
    between[k]();
    ASSERT_GOOD(context.apply_checked(patches(), nullptr));
    expect_new();
    reset();
    // The payloads are read again, which the damage shows.
    ASSERT_GOOD(context.check(patches(), nullptr));
    between[k]();
    const std::vector<Coded> sound = coded_;
    for (Coded& one : coded_) std::fill(one.payload.begin(), one.payload.end(), uint8_t(0xee));
    EXPECT_EQ(context.apply_checked(patches(), nullptr).code(), Code::kCorruption);
    expect_old();
    for (size_t i = 0; i < coded_.size(); ++i) {
      std::copy(sound[i].payload.begin(), sound[i].payload.end(), coded_[i].payload.begin());
    }
    reset();
  }
}

TEST_F(HostDecodeTest, RespectsItsLimit) {
  Context context = make_context();
  CheckedPatches& checked = ContextInternals::of(context).checked;
  for (const uint64_t limit : {uint64_t{0}, uint64_t{20'000}, kMiB}) {
    checked = CheckedPatches(limit);
    ASSERT_GOOD(context.check(patches(), nullptr));
    EXPECT_LE(checked.size_bytes(), limit);
    EXPECT_EQ(checked.size_bytes() == 0, limit == 0);
    ASSERT_GOOD(context.apply_checked(patches(), nullptr));
    expect_new();
    make_old_again();
  }
}

TEST_F(HostDecodeTest, OneDamagedPayloadChangesNothing) {
  Context context = make_context();
  // One of another codec, whose damage the device detects.
  arrays_.emplace_back(make_pair(9, 2, 300'000, 0.01));
  coded_.push_back(
      {"gaps", cpu_encode("gaps", arrays_.back().dtype, arrays_.back().host).payload, 0});
  for (size_t bad = 0; bad < arrays_.size(); bad += 4) {
    if (coded_[bad].payload.empty()) continue;
    std::vector<Coded> damaged = coded_;
    damaged[bad].payload.pop_back();
    const std::vector<Patch> patches = patches_of(arrays_, damaged);
    for (const bool write : {false, true}) {
      const Status status =
          write ? context.apply(patches, nullptr) : context.check(patches, nullptr);
      EXPECT_EQ(status.code(), Code::kCorruption) << status.to_string();
      EXPECT_TRUE(mentions(status, "patch " + std::to_string(bad) + ":")) << status.to_string();
      EXPECT_EQ(ContextInternals::of(context).checked.size_bytes(), 0);
      expect_old();
    }
  }
  std::vector<Coded> damaged = coded_;
  damaged.back().payload.pop_back();
  const Status status = context.check(patches_of(arrays_, damaged), nullptr);
  EXPECT_EQ(status.code(), Code::kCorruption) << status.to_string();
  EXPECT_EQ(ContextInternals::of(context).checked.size_bytes(), 0);
  ASSERT_GOOD(context.apply(patches(), nullptr));
  expect_new();
}

// It passes through pinned memory in pieces, the last of which is partial.
TEST_F(HostDecodeTest, HandlesArraysLargerThanThePinnedMemory) {
  Context context = make_context();
  arrays_.clear();
  coded_.clear();
  arrays_.push_back(packed_sides(1, 4, 10'000, 300));
  arrays_.push_back(packed_sides(2, 4, (260 * kMiB + 4444) / 4, 20'000));
  arrays_.push_back(packed_sides(3, 1, 10'000, 300));
  for (const BothSides& array : arrays_) {
    Encoded encoded = cpu_encode(kCodec, array.dtype, array.host);
    coded_.push_back({kCodec, std::move(encoded.payload), encoded.num_changed});
  }
  ASSERT_GOOD(context.check(patches(), nullptr));
  expect_old();
  ASSERT_GOOD(context.apply_checked(patches(), nullptr));
  expect_new();
}

}  // namespace
}  // namespace deltawire::cuda
