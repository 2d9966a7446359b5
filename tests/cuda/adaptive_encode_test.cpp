// `adaptive` for arrays on a GPU: the CPU's bytes, and `auto` chooses it where the CPU does.
#include "codec/choose.h"
#include "codec/cuda/adaptive_payloads.h"
#include "codec/cuda/workspace.h"
#include "cuda/packed_pairs.h"

namespace deltawire::cuda {
namespace {

// ---- the host's part, which needs no GPU

// The lists that a device would send for a pair.
std::vector<uint8_t> lists_of(const HostPair& pair) {
  const size_t n = pair.old_bytes.size() / pair.width;
  std::vector<uint8_t> lists, new_values, old_values;
  for (size_t i = 0, next = 0; i < n; ++i) {
    const auto before = pair.old_bytes.begin() + ptrdiff_t(i * pair.width);
    const auto after = pair.new_bytes.begin() + ptrdiff_t(i * pair.width);
    if (std::equal(before, before + pair.width, after)) continue;
    for (unsigned k = 0; k < 4; ++k) lists.push_back(uint8_t((i - next) >> 8 * k));
    next = i + 1;
    new_values.insert(new_values.end(), after, after + pair.width);
    old_values.insert(old_values.end(), before, before + pair.width);
  }
  lists.insert(lists.end(), new_values.begin(), new_values.end());
  lists.insert(lists.end(), old_values.begin(), old_values.end());
  return lists;
}

TEST(AdaptivePayloads, EqualTheCpusForAnyChanges) {
  ThreadPool pool(3);
  for (const unsigned width : {1U, 2U, 4U, 8U}) {
    std::vector<HostPair> hosts;
    for (const size_t n : {1, 2, 1000, 70'000}) {
      for (const double density : {0.0, 0.01, 1.0}) {
        hosts.push_back(make_pair(n, width, n, density, Content::kNoise));
      }
      hosts.push_back(make_packed_pair(n, width, n, 50));
    }
    std::vector<DevicePair> pairs;
    std::vector<DeviceEncoded> out;
    for (const HostPair& host : hosts) {
      pairs.push_back({layout_of(width), nullptr, nullptr, host.old_bytes.size() / width});
      out.push_back({{lists_of(host), encode_on_cpu(CodecId::kGaps, host).num_changed}});
    }
    SpareVectors spare(kMiB);
    DeviceOptions options;
    options.pool = &pool;
    options.spare = &spare;
    ASSERT_GOOD(code_adaptive(pairs, options, out));
    for (size_t i = 0; i < hosts.size(); ++i) {
      EXPECT_TRUE(out[i].payload == encode_on_cpu(CodecId::kAdaptive, hosts[i]).payload)
          << "width " << width << ", array " << i;
    }
  }
}

TEST(AdaptivePayloads, RejectInconsistentLists) {
  HostPair host{4, std::vector<uint8_t>(40), std::vector<uint8_t>(40)};
  host.new_bytes[4] = host.new_bytes[20] = 1;
  const std::vector<uint8_t> sound = lists_of(host);
  const DevicePair pair{layout_of(4), nullptr, nullptr, 10};
  const auto code = [&](size_t at, uint8_t value) {
    DeviceEncoded one{{sound, 2}};
    one.payload[at] = value;
    return code_adaptive({&pair, 1}, {}, {&one, 1});
  };
  ASSERT_EQ(sound.size(), 2 * 12);
  EXPECT_TRUE(code(0, 1).ok());                 // as it is
  EXPECT_EQ(code(4, 8).code(), Code::kIo);      // outside of the array
  EXPECT_EQ(code(4 + 3, 1).code(), Code::kIo);  // far outside
  EXPECT_EQ(code(8, 0).code(), Code::kIo);      // no change
}

// ---- on a GPU

void expect_cpus_payloads(const DeviceBatch& batch, const DeviceOptions& options) {
  const auto encoded = encode(CodecId::kAdaptive, batch.pairs, options, nullptr);
  ASSERT_TRUE(encoded.ok()) << encoded.status().to_string();
  for (size_t i = 0; i < batch.pairs.size(); ++i) {
    const HostPair& host = batch.host[i];
    const Encoded expected = encode_on_cpu(CodecId::kAdaptive, host);
    const std::string what = "array " + std::to_string(i) + ", width " +
                             std::to_string(host.width) + ", " +
                             std::to_string(batch.pairs[i].num_elements) + " elements";
    ASSERT_EQ((*encoded)[i].num_changed, expected.num_changed) << what;
    ASSERT_TRUE((*encoded)[i].payload == expected.payload) << what;
    ASSERT_EQ((*encoded)[i].new_digest.has_value(), options.new_digests) << what;
    if (options.new_digests) {
      ASSERT_EQ((*encoded)[i].new_digest, digest_of(DigestKind::kSum128, host.new_bytes)) << what;
    }
  }
}

class AdaptiveEncodeTest : public ::testing::Test {
 protected:
  void SetUp() override { SKIP_WITHOUT_GPU(); }
};

// Arrays of all widths in one call, with none, some or all of their elements changed.
TEST_F(AdaptiveEncodeTest, EveryWidthSizeDensityAndAlignment) {
  ThreadPool pool(4);
  DeviceBatch batch;
  for (const unsigned width : {1U, 2U, 4U, 8U}) {
    for (const size_t n : {0, 1, 31, 1000, 16'385, 262'145}) {
      for (const double density : {0.0, 0.0005, 0.02, 1.0}) {
        batch.add(make_pair(n + width, width, n, density), n == 1000 ? 3 : 0);
      }
      batch.add(make_packed_pair(n, width, n, 100), n == 16'385 ? 8 : 0);
    }
  }
  for (const bool digests : {false, true}) {
    DeviceOptions options;
    options.new_digests = digests;
    options.pool = digests ? &pool : nullptr;
    expect_cpus_payloads(batch, options);
  }
}

// Several batches; lists that exceed their half, the scratch, and a fixed budget.
TEST_F(AdaptiveEncodeTest, WorksWithLittleScratch) {
  ThreadPool pool(4);
  Workspace workspace;
  DeviceBatch batch;
  for (size_t i = 0; i < 4; ++i) batch.add(make_packed_pair(i, 4, 1'500'000, 300));
  batch.add(make_pair(9, 2, 500'000, 0.9));
  for (size_t i = 0; i < 4; ++i) batch.add(make_pair(i, 2, 900'000, 0.02));
  batch.add(make_pair(10, 8, 200'000, 1.0, Content::kNoise));
  for (const uint64_t scratch : {1 * kMiB, 4 * kMiB, 13 * kMiB + 12'345}) {
    DeviceOptions options;
    options.scratch_bytes = scratch;
    options.pool = &pool;
    options.workspace = &workspace;
    options.new_digests = true;
    expect_cpus_payloads(batch, options);
  }
  DeviceOptions options;
  options.scratch_bytes = 2 * kMiB;
  options.within_scratch = true;
  const Status status = encode(CodecId::kAdaptive, batch.pairs, options, nullptr).status();
  EXPECT_EQ(status.code(), Code::kOutOfMemory) << status.to_string();
}

TEST_F(AdaptiveEncodeTest, ComparesWiderFloatsAsBf16) {
  Context context = make_context();
  for (const DType dtype : {DType::kF32, DType::kF16}) {
    for (const size_t n : {1, 5000, 300'001}) {
      const WideFloats wide = make_wide(n, dtype, n);
      HostPair host{2, wide.rounded, wide.rounded};
      for (size_t i = 0; i < n; i += 97) host.old_bytes[2 * i] ^= 3;
      const OnDevice old_array(host.old_bytes), new_array(wide.wide);
      const Pair pair{{DType::kBF16, old_array.data(), 2 * n}, {dtype, new_array.data()}};
      const auto coded = context.encode("adaptive", {&pair, 1}, nullptr, NewDigests::kSum128);
      ASSERT_TRUE(coded.ok()) << coded.status().to_string();
      EXPECT_TRUE((*coded)[0].payload == cpu_encode("adaptive", DType::kBF16, host).payload) << n;
      EXPECT_EQ((*coded)[0].new_digest, digest_of(DigestKind::kSum128, host.new_bytes)) << n;
    }
  }
}

// Packed arrays and a few changes, on both sides of the rule's limits.
std::vector<BothSides> arrays_to_choose_for() {
  std::vector<BothSides> arrays;
  for (const unsigned width : {1U, 2U, 4U, 8U}) {
    for (const uint64_t one_in : {40, 300, 5000}) {
      arrays.push_back(packed_sides(one_in, width, 40'000, one_in));
      arrays.push_back(packed_sides(one_in + width, width, 600'001, one_in));
    }
    arrays.push_back(packed_sides(3, width, 50'000, uint64_t{1} << 60));  // nothing changes
    arrays.emplace_back(make_pair(width, width, 400'000, 0.0002));        // floats
  }
  arrays.push_back(packed_sides(4, 4, 3'300'000, 20));   // more changes than it is tried for
  arrays.emplace_back(make_pair(11, 1, 400'000, 0.02));  // and of floats of a byte
  arrays.push_back(packed_sides(5, 1, 0, 1));
  return arrays;
}

// Compares with the CPU's choices, which must be codecs that a device tries.
void expect_cpus_choices(const std::vector<BothSides>& arrays, const std::vector<Coded>& coded) {
  ASSERT_EQ(coded.size(), arrays.size());
  size_t adaptive = 0, tight = 0;
  for (size_t i = 0; i < arrays.size(); ++i) {
    const HostPair& host = arrays[i].host;
    const Choice choice =
        good(encode_smallest(layout_of(arrays[i].dtype), host.old_bytes, host.new_bytes, nullptr));
    EXPECT_EQ(coded[i].codec, find_codec(choice.codec)->name()) << i;
    EXPECT_EQ(coded[i].num_changed, choice.encoded.num_changed) << i;
    EXPECT_TRUE(coded[i].payload == choice.encoded.payload) << i << " " << coded[i].codec;
    adaptive += coded[i].codec == "adaptive";
    tight += coded[i].codec == "tight";
  }
  EXPECT_GT(adaptive, 12);
  EXPECT_GT(tight, 4);
}

TEST_F(AdaptiveEncodeTest, AutoChoosesLikeTheCpu) {
  const std::vector<BothSides> arrays = arrays_to_choose_for();
  for (const uint64_t scratch : {8 * kMiB, 256 * kMiB}) {
    Context context = make_context(scratch);
    const auto coded = context.encode("auto", pairs_of(arrays), nullptr);
    ASSERT_TRUE(coded.ok()) << coded.status().to_string();
    expect_cpus_choices(arrays, *coded);
  }
}

TEST_F(AdaptiveEncodeTest, SnapshotsChooseLikeTheCpu) {
  using Placement = DeviceSnapshot::Placement;
  const std::vector<BothSides> arrays = arrays_to_choose_for();
  for (const Placement placement : {Placement::kDevice, Placement::kPinned}) {
    Context context = make_context(64 * kMiB);
    DeviceSnapshot snapshot(&context, placement);
    std::vector<DeviceSnapshot::Change> changes;
    for (const BothSides& array : arrays) {
      changes.push_back({good(snapshot.add(array.host.old_bytes, array.dtype)), array.after()});
    }
    const auto coded = snapshot.encode("auto", changes, nullptr, NewDigests::kSum128);
    ASSERT_TRUE(coded.ok()) << coded.status().to_string();
    expect_cpus_choices(arrays, *coded);
    std::vector<DeviceSnapshot::Step> steps;
    for (size_t i = 0; i < arrays.size(); ++i) {
      EXPECT_EQ((*coded)[i].new_digest, digest_of(DigestKind::kSum128, arrays[i].host.new_bytes));
      steps.push_back({changes[i].slot, (*coded)[i].codec, (*coded)[i].payload});
    }
    ASSERT_GOOD(snapshot.advance(steps, nullptr));
    for (size_t i = 0; i < arrays.size(); ++i) {
      std::vector<uint8_t> held(arrays[i].size());
      ASSERT_GOOD(snapshot.read(changes[i].slot, 0, held, nullptr));
      EXPECT_TRUE(held == arrays[i].host.new_bytes) << i;
    }
  }
}

}  // namespace
}  // namespace deltawire::cuda
