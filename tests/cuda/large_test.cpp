// Arrays with more elements than 31, and 32, bits can count: the CPU's bytes out, its weights in.
#include <unistd.h>

#include <algorithm>

#include "base/thread_pool.h"
#include "cuda/contexts.h"

namespace deltawire::cuda {
namespace {

constexpr uint64_t kTwo31 = uint64_t{1} << 31, kTwo32 = uint64_t{1} << 32;
constexpr uint64_t kGB = 1'000'000'000;

struct Size {
  unsigned width;
  uint64_t num_elements;  // several blocks and a part of one above the border
};

class LargeTest : public ::testing::TestWithParam<Size> {
 protected:
  void SetUp() override {
    SKIP_WITHOUT_GPU();
    // Needs three arrays and a snapshot; on the host, two and a pinned snapshot.
    const uint64_t size = GetParam().width * GetParam().num_elements;
    const uint64_t needed = 4 * size + kGB, free = good(device_info()).free_bytes;
    if (free < needed) {
      GTEST_SKIP() << "skipped: needs " << needed / kGB << " GB of device memory, " << free / kGB
                   << " are free";
    }
    const uint64_t host_free =
        uint64_t(sysconf(_SC_AVPHYS_PAGES)) * uint64_t(sysconf(_SC_PAGESIZE));
    if (host_free < needed) {
      GTEST_SKIP() << "skipped: needs " << needed / kGB << " GB of host memory, " << host_free / kGB
                   << " are free";
    }
  }
};

// Ascending: both ends, both sides of every border, random places, many at the end.
std::vector<uint64_t> places_of_changes(uint64_t n) {
  std::vector<uint64_t> places = {0, 1, n - 1};
  for (const uint64_t border : {uint64_t{1} << 18, kTwo31, kTwo32, uint64_t{1} << 30}) {
    for (uint64_t i = border - 3; i < border + 3; ++i) places.push_back(i);
  }
  Random random(1);
  for (unsigned i = 0; i < 30'000; ++i) places.push_back(random() % n);
  for (uint64_t i = n - 20'000; i < n; i += 1 + random() % 7) places.push_back(i);
  std::erase_if(places, [n](uint64_t place) { return place >= n; });
  std::sort(places.begin(), places.end());
  places.erase(std::unique(places.begin(), places.end()), places.end());
  return places;
}

HostPair make_large_pair(const Size& size, const std::vector<uint64_t>& places) {
  const HostPair some = make_pair(1, size.width, 999'983, 0);  // again and again
  HostPair pair{size.width, std::vector<uint8_t>(size.num_elements * size.width), {}};
  for (size_t at = 0; at < pair.old_bytes.size(); at += some.old_bytes.size()) {
    std::memcpy(pair.old_bytes.data() + at, some.old_bytes.data(),
                std::min(some.old_bytes.size(), pair.old_bytes.size() - at));
  }
  pair.new_bytes = pair.old_bytes;
  Random random(2);
  for (const uint64_t place : places) {
    uint8_t* const at = pair.new_bytes.data() + place * size.width;
    *at = uint8_t(*at + 1 + (random() % 4 == 0 ? random() % 255 : 0));
  }
  return pair;
}

class Large {
 public:
  explicit Large(const Size& size)
      : places_(places_of_changes(size.num_elements)),
        arrays_(make_large_pair(size, places_)),
        digest_(digest_of(DigestKind::kSum128, arrays_.host.new_bytes)),
        work_(good(Buffer::allocate(Place::kDevice, arrays_.size()))) {}

  // Encodes and applies in every possible way.
  void expect_codec(const std::string& codec) {
    const Encoded expected = good(find_codec(codec)->encode(
        layout_of(arrays_.dtype), arrays_.host.old_bytes, arrays_.host.new_bytes, &pool_));
    ASSERT_EQ(expected.num_changed, places_.size());
    const Pair pair = arrays_.pair();
    const std::vector<Coded> coded = good(context_.encode(codec, {&pair, 1}, nullptr));
    ASSERT_EQ(coded.size(), 1);
    EXPECT_EQ(coded[0].num_changed, expected.num_changed);
    ASSERT_TRUE(coded[0].payload == expected.payload);

    reset();
    const Patch patch{work(), codec, coded[0].payload};
    ASSERT_GOOD(context_.check({&patch, 1}, nullptr));
    ASSERT_GOOD(context_.apply({&patch, 1}, nullptr));
    expect_patched();
    reset();
    ASSERT_GOOD(context_.apply_checked({&patch, 1}, nullptr));
    expect_patched();
  }

  void expect_snapshot(DeviceSnapshot::Placement placement) {
    DeviceSnapshot snapshot(&context_, placement);
    const Contents before{{arrays_.dtype, arrays_.old_array.data()}, arrays_.dtype, arrays_.size()};
    const DeviceSnapshot::Slot slot = good(snapshot.add(before, nullptr));
    const DeviceSnapshot::Change change{slot, arrays_.after()};
    for (const char* codec : {"gaps", "tight"}) {
      const std::vector<Coded> coded = good(snapshot.encode(codec, {&change, 1}, nullptr));
      ASSERT_EQ(coded.size(), 1);
      ASSERT_EQ(coded[0].num_changed, places_.size()) << codec;
      if (std::string_view(codec) == "gaps") continue;
      const DeviceSnapshot::Step step{slot, codec, coded[0].payload};
      ASSERT_GOOD(snapshot.advance({&step, 1}, nullptr));
    }
    EXPECT_EQ(good(snapshot.digests({&slot, 1}, nullptr))[0], digest_);
    std::vector<uint8_t> end(1000);
    const uint64_t offset = arrays_.size() - end.size();
    ASSERT_GOOD(snapshot.read(slot, offset, end, nullptr));
    EXPECT_TRUE(
        std::equal(end.begin(), end.end(), arrays_.host.new_bytes.begin() + ptrdiff_t(offset)));
  }

 private:
  DeviceArray work() const { return {arrays_.dtype, work_.data(), arrays_.size()}; }
  void reset() const {
    ASSERT_GOOD(copy(work_.data(), arrays_.old_array.data(), arrays_.size(), nullptr));
    ASSERT_GOOD(wait(nullptr));
  }
  void expect_patched() {
    const Contents contents{{arrays_.dtype, work_.data()}, arrays_.dtype, arrays_.size()};
    EXPECT_EQ(good(context_.digests({&contents, 1}, nullptr))[0], digest_);
  }

  ThreadPool pool_{0};
  Context context_ = make_context();
  const std::vector<uint64_t> places_;
  const BothSides arrays_;
  const Digest digest_;
  const Buffer work_;
};

TEST_P(LargeTest, EncodesAndAppliesToTheEnd) {
  Large large(GetParam());
  for (const char* codec : {"tight", "gaps"}) {
    SCOPED_TRACE(codec);
    ASSERT_NO_FATAL_FAILURE(large.expect_codec(codec));
  }
  ASSERT_NO_FATAL_FAILURE(large.expect_snapshot(DeviceSnapshot::Placement::kDevice));
  ASSERT_NO_FATAL_FAILURE(large.expect_snapshot(DeviceSnapshot::Placement::kPinned));
}

INSTANTIATE_TEST_SUITE_P(
    All, LargeTest, ::testing::Values(Size{1, kTwo32 + 1'000'003}, Size{2, kTwo31 + 1'000'003}),
    [](const auto& param) { return "Width" + std::to_string(param.param.width); });

}  // namespace
}  // namespace deltawire::cuda
