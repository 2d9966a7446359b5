// Digests of new arrays that are computed with their payloads, compared with the CPU's.
#include "cuda/contexts.h"

namespace deltawire::cuda {
namespace {

class NewDigestTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override { SKIP_WITHOUT_GPU(); }

  static void expect_digests(const std::vector<BothSides>& arrays,
                             const std::vector<Coded>& coded) {
    ASSERT_EQ(coded.size(), arrays.size());
    for (size_t i = 0; i < arrays.size(); ++i) {
      const HostPair& host = arrays[i].host;
      ASSERT_TRUE(coded[i].new_digest.has_value()) << i;
      ASSERT_EQ(coded[i].new_digest->hex(), digest_of(DigestKind::kSum128, host.new_bytes).hex())
          << "array " << i << ": " << host.new_bytes.size() << " bytes of width " << host.width;
      // Asking for a digest does not change the payload.
      ASSERT_TRUE(coded[i].payload == cpu_encode(coded[i].codec, arrays[i].dtype, host).payload)
          << i << " " << coded[i].codec;
    }
  }
};

// Ends inside a word, a segment, a slab, a tile, a step and a block.
constexpr size_t kCounts[] = {0,       1,       2,       3,         5,        63,
                              64,      255,     257,     511,       4096,     4097,
                              8191,    8193,    32'767,  32'768,    32'769,   65'537,
                              262'143, 262'144, 262'145, 1'048'576, 1'300'003};

TEST_P(NewDigestTest, EverySizeWidthAndAlignment) {
  for (const uint64_t scratch : {8 * kMiB, 256 * kMiB}) {
    Context context = make_context(scratch);
    for (const size_t skew : {0, 1, 8}) {
      std::vector<BothSides> arrays;
      for (const unsigned width : {1U, 2U, 4U, 8U}) {
        for (const size_t n : kCounts) {
          arrays.emplace_back(make_trained_pair(n + width, width, n, 0.01), skew);
        }
      }
      const auto coded = context.encode(GetParam(), pairs_of(arrays), nullptr, NewDigests::kSum128);
      ASSERT_TRUE(coded.ok()) << coded.status().to_string();
      expect_digests(arrays, *coded);
    }
  }
}

// Blocks without enough room are coded again, tiles with many changes are read again, and batches
// whose lists do not fit are compared again: nothing is added twice.
TEST_P(NewDigestTest, DenseChangesAreAddedOnce) {
  for (const uint64_t scratch : {8 * kMiB, 256 * kMiB}) {
    Context context = make_context(scratch);
    std::vector<BothSides> arrays;
    for (const unsigned width : {1U, 2U, 4U, 8U}) {
      for (const double density : {0.0, 0.2, 0.7, 1.0}) {
        arrays.emplace_back(make_pair(width, width, 600'001, density, Content::kNoise));
      }
    }
    // Dense in a single place, where no sample is taken.
    HostPair pair = make_pair(7, 2, 3'000'000, 0.0001);
    for (size_t i = 2'000'000; i < 2'100'000; ++i) pair.new_bytes[i] ^= 0xff;
    arrays.emplace_back(std::move(pair));
    const auto coded = context.encode(GetParam(), pairs_of(arrays), nullptr, NewDigests::kSum128);
    ASSERT_TRUE(coded.ok()) << coded.status().to_string();
    expect_digests(arrays, *coded);
  }
}

TEST_P(NewDigestTest, WiderFloatsCountAsBf16) {
  for (const DType dtype : {DType::kF32, DType::kF16}) {
    for (const size_t skew : {0, 2}) {
      for (const size_t n : {1, 5000, 262'144, 1'000'001}) {
        Context context = make_context();
        const WideFloats before = make_wide(1, dtype, n), after = make_wide(2, dtype, n);
        const OnDevice old_array(before.rounded, skew), new_array(after.wide, skew);
        const Pair pair{{DType::kBF16, old_array.data(), before.rounded.size()},
                        {dtype, new_array.data()}};
        const auto coded = context.encode(GetParam(), {&pair, 1}, nullptr, NewDigests::kSum128);
        ASSERT_TRUE(coded.ok()) << coded.status().to_string();
        EXPECT_EQ((*coded)[0].new_digest, digest_of(DigestKind::kSum128, after.rounded)) << n;
      }
    }
  }
}

TEST_P(NewDigestTest, WorksForPinnedSnapshots) {
  for (const auto placement :
       {DeviceSnapshot::Placement::kDevice, DeviceSnapshot::Placement::kPinned}) {
    Context context = make_context(64 * kMiB);
    DeviceSnapshot snapshot(&context, placement);
    std::vector<BothSides> arrays;
    std::vector<DeviceSnapshot::Change> changes;
    for (size_t i = 0; i < 40; ++i) {
      arrays.emplace_back(make_pair(i, i % 2 == 0 ? 2 : 4, 10 + i * i * 700, 0.01));
    }
    for (const BothSides& array : arrays) {
      changes.push_back({good(snapshot.add(array.host.old_bytes, array.dtype)), array.after()});
    }
    const auto coded = snapshot.encode(GetParam(), changes, nullptr, NewDigests::kSum128);
    ASSERT_TRUE(coded.ok()) << coded.status().to_string();
    expect_digests(arrays, *coded);
  }
}

TEST_P(NewDigestTest, ComputedOnRequestOnly) {
  Context context = make_context();
  const BothSides array(make_pair(1, 2, 600'000, 0.01));
  const Pair pair = array.pair();
  const auto coded = context.encode(GetParam(), {&pair, 1}, nullptr);
  ASSERT_TRUE(coded.ok()) << coded.status().to_string();
  EXPECT_FALSE((*coded)[0].new_digest.has_value());
}

// Known from the patch without another pass over the array, or not at all.
TEST_P(NewDigestTest, PatchedArraysHaveDigestsWithoutAnotherPass) {
  for (const std::optional<uint64_t> kept : kKept) {
    for (const size_t skew : {0, 1}) {
      Context context = make_context(8 * kMiB, kept);
      std::vector<BothSides> arrays;
      for (const unsigned width : {1U, 2U, 4U, 8U}) {
        for (const size_t n : {0, 3, 1001, 262'144, 262'145, 1'300'003}) {
          arrays.emplace_back(make_trained_pair(n + width, width, n, 0.02), skew);
        }
        HostPair pair = make_pair(width, width, 800'000, 0);  // one block of four has changes
        pair.new_bytes[300'000 * width] ^= 1;
        arrays.emplace_back(std::move(pair), skew);
      }
      const std::vector<Coded> coded = good(context.encode(GetParam(), pairs_of(arrays), nullptr));
      const std::vector<Patch> patches = patches_of(arrays, coded);
      ASSERT_GOOD(context.check(patches, nullptr));
      std::vector<std::optional<Digest>> digests;
      ASSERT_GOOD(context.apply_checked(patches, nullptr, &digests));
      ASSERT_EQ(digests.size(), arrays.size());
      for (size_t i = 0; i < arrays.size(); ++i) {
        const HostPair& host = arrays[i].host;
        ASSERT_TRUE(arrays[i].old_array.fetch() == host.new_bytes) << i;
        if (coded[i].codec != "tight") {
          EXPECT_FALSE(digests[i].has_value()) << i;
        } else if (digests[i]) {
          ASSERT_EQ(digests[i]->hex(), digest_of(DigestKind::kSum128, host.new_bytes).hex()) << i;
        } else {
          // The digest is unknown if a last block of one element, three of four blocks, or all are
          // unchanged.
          EXPECT_TRUE(i % 7 == 4 || i % 7 == 6 || coded[i].num_changed == 0) << i;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Codecs, NewDigestTest,
                         ::testing::Values("tight", "gaps", "adaptive", "auto", "raw", "exponents"),
                         codec_in_name);

}  // namespace
}  // namespace deltawire::cuda
