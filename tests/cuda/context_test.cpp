// Context gives the CPU's payloads and weights with every codec, and applies all patches or none.
#include "device/context.h"
#include "cuda/contexts.h"

namespace deltawire::cuda {
namespace {

class ContextTest : public ::testing::Test {
 protected:
  void SetUp() override { SKIP_WITHOUT_GPU(); }
};

void expect_unchanged(const std::vector<BothSides>& arrays) {
  for (size_t i = 0; i < arrays.size(); ++i) {
    ASSERT_TRUE(arrays[i].old_array.fetch() == arrays[i].host.old_bytes) << "array " << i;
  }
}

void expect_patched(const std::vector<BothSides>& arrays) {
  for (size_t i = 0; i < arrays.size(); ++i) {
    ASSERT_TRUE(arrays[i].old_array.fetch() == arrays[i].host.new_bytes) << "array " << i;
  }
}

TEST_F(ContextTest, EveryCodecMatchesTheCpu) {
  Context context = make_context();
  for (const Codec* const codec : all_codecs()) {
    std::vector<BothSides> arrays;
    for (const unsigned width : {1U, 2U, 4U, 8U}) {
      for (const size_t n : {0, 1, 1000, 300'000}) {
        arrays.emplace_back(make_pair(n + width, width, n, 0.01), n == 1000 ? 3 : 0);
      }
    }
    const auto coded = context.encode(codec->name(), pairs_of(arrays), nullptr);
    ASSERT_TRUE(coded.ok()) << codec->name() << ": " << coded.status().to_string();
    for (size_t i = 0; i < arrays.size(); ++i) {
      const Encoded expected = cpu_encode(codec->name(), arrays[i].dtype, arrays[i].host);
      EXPECT_EQ((*coded)[i].num_changed, expected.num_changed) << codec->name() << " " << i;
      ASSERT_TRUE((*coded)[i].payload == expected.payload) << codec->name() << " " << i;
    }
    const std::vector<Patch> patches = patches_of(arrays, *coded);
    ASSERT_GOOD(context.check(patches, nullptr));
    expect_unchanged(arrays);
    ASSERT_GOOD(context.apply(patches, nullptr));
    expect_patched(arrays);
  }
}

TEST_F(ContextTest, AutoChoosesTheSmallestDeviceCodec) {
  Context context = make_context();
  std::vector<BothSides> arrays;
  uint64_t seed = 0;
  for (const unsigned width : {1U, 2U, 4U, 8U}) {
    for (const double density : {0.0, 0.00001, 0.012, 0.5, 1.0}) {
      for (const size_t n : {3000, 700'000}) {
        const Content content = density == 1.0 ? Content::kNoise : Content::kWeights;
        arrays.emplace_back(make_pair(++seed, width, n, density, content));
      }
    }
  }
  // Everything changes: no codec is smaller than the array itself.
  arrays.emplace_back(make_pair(77, 2, 400'000, 0, Content::kNoise));
  arrays.back().host.new_bytes = make_pair(78, 2, 400'000, 0, Content::kNoise).new_bytes;
  arrays.back() = BothSides(arrays.back().host);

  const auto coded = context.encode("auto", pairs_of(arrays), nullptr);
  ASSERT_TRUE(coded.ok()) << coded.status().to_string();
  std::vector<size_t> of_codec(16);
  for (size_t i = 0; i < arrays.size(); ++i) {
    const Coded& one = (*coded)[i];
    const Encoded same = cpu_encode(one.codec, arrays[i].dtype, arrays[i].host);
    ASSERT_TRUE(one.payload == same.payload) << i << " " << one.codec;
    EXPECT_EQ(one.num_changed, cpu_encode("gaps", arrays[i].dtype, arrays[i].host).num_changed);
    for (const char* other : {"tight", "gaps", "raw"}) {
      if (one.num_changed == 0) continue;
      const size_t size = cpu_encode(other, arrays[i].dtype, arrays[i].host).payload.size();
      // `gaps` is tried only where it could be smaller, a rule that is never wrong.
      EXPECT_LE(one.payload.size(), size) << i << " " << one.codec << " " << other;
    }
    ++of_codec[size_t(find_codec(one.codec)->id())];
  }
  EXPECT_GT(of_codec[size_t(CodecId::kTight)], 0);
  EXPECT_GT(of_codec[size_t(CodecId::kRaw)], 0);
  ASSERT_GOOD(context.apply(patches_of(arrays, *coded), nullptr));
  expect_patched(arrays);
}

TEST_F(ContextTest, WiderFloatsGiveTheSamePayloads) {
  Context context = make_context();
  for (const DType dtype : {DType::kF32, DType::kF16}) {
    for (const size_t n : {1000, 300'000}) {
      const WideFloats wide = make_wide(n, dtype, n);
      HostPair host{2, wide.rounded, wide.rounded};
      for (size_t i = 0; i < n; i += 97) host.old_bytes[2 * i] ^= 1;
      const OnDevice old_array(host.old_bytes), new_array(wide.wide);
      const Pair pair{{DType::kBF16, old_array.data(), 2 * n}, {dtype, new_array.data()}};
      for (const char* codec : {"tight", "gaps", "adaptive", "raw", "exponents", "auto"}) {
        const auto coded = context.encode(codec, {&pair, 1}, nullptr);
        ASSERT_TRUE(coded.ok()) << coded.status().to_string();
        const Coded& one = (*coded)[0];
        EXPECT_TRUE(one.payload == cpu_encode(one.codec, DType::kBF16, host).payload) << codec;
      }
    }
  }
}

TEST_F(ContextTest, OneBadPayloadChangesNothing) {
  Context context = make_context();
  std::vector<BothSides> arrays;
  std::vector<Coded> coded;
  for (const Codec* const codec : all_codecs()) {
    for (const unsigned width : {2U, 4U}) {
      arrays.emplace_back(make_pair(arrays.size(), width, 270'000, 0.01));
      Encoded encoded = cpu_encode(codec->name(), arrays.back().dtype, arrays.back().host);
      coded.push_back({std::string(codec->name()), std::move(encoded.payload), 0});
    }
  }
  for (size_t bad = 0; bad < arrays.size(); ++bad) {
    std::vector<Coded> damaged = coded;
    damaged[bad].payload.resize(damaged[bad].payload.size() - 1);
    const std::vector<Patch> patches = patches_of(arrays, damaged);
    for (const bool write : {false, true}) {
      const Status status =
          write ? context.apply(patches, nullptr) : context.check(patches, nullptr);
      EXPECT_EQ(status.code(), Code::kCorruption) << coded[bad].codec << status.to_string();
      EXPECT_TRUE(mentions(status, "patch " + std::to_string(bad) + ":")) << status.to_string();
      expect_unchanged(arrays);
    }
  }
  ASSERT_GOOD(context.apply(patches_of(arrays, coded), nullptr));
  expect_patched(arrays);
}

TEST_F(ContextTest, WorksWithLittleScratch) {
  std::vector<BothSides> arrays;
  for (size_t i = 0; i < 4; ++i) arrays.emplace_back(make_pair(i, 2, 3'000'000, 0.02));
  arrays.emplace_back(make_pair(9, 2, 1'500'000, 0.9));
  arrays.emplace_back(make_pair(10, 8, 600'000, 1.0, Content::kNoise));
  Context context = make_context(8 * kMiB);
  for (const char* codec : {"tight", "gaps", "adaptive", "auto"}) {
    const auto coded = context.encode(codec, pairs_of(arrays), nullptr);
    ASSERT_TRUE(coded.ok()) << codec << ": " << coded.status().to_string();
    for (size_t i = 0; i < arrays.size(); ++i) {
      const Coded& one = (*coded)[i];
      ASSERT_TRUE(one.payload == cpu_encode(one.codec, arrays[i].dtype, arrays[i].host).payload)
          << codec << " " << i;
    }
    // Damage in the last payload is detected before the first is written, in any number of batches.
    std::vector<Coded> damaged = *coded;
    damaged.back().payload.pop_back();
    for (const std::optional<uint64_t> kept : kKept) {
      Context own = make_context(8 * kMiB, kept);
      EXPECT_EQ(own.apply(patches_of(arrays, damaged), nullptr).code(), Code::kCorruption);
      expect_unchanged(arrays);
      ASSERT_GOOD(own.apply(patches_of(arrays, *coded), nullptr));
      expect_patched(arrays);
      EXPECT_LE(own.kept_bytes(), kept.value_or(64 * kMiB));
      if (std::string_view(codec) == "tight") {
        EXPECT_EQ(own.kept_bytes() > 0, kept != 0);
      }
      for (BothSides& array : arrays) array = BothSides(array.host);
    }
  }
}

// Results of a check are used by the next apply, whatever comes in between.
TEST_F(ContextTest, AppliesWhatItHasChecked) {
  const auto sizes = {std::pair(8 * kMiB, kKept[0]), std::pair(8 * kMiB, kKept[1]),
                      std::pair(8 * kMiB, kKept[2]), std::pair(256 * kMiB, kKept[2])};
  for (const auto& [scratch, kept] : sizes) {
    Context context = make_context(scratch, kept);
    std::vector<BothSides> arrays, others;
    for (const unsigned width : {1U, 2U, 4U, 8U}) {
      for (const size_t n : {1000, 270'000, 2'000'000}) {
        arrays.emplace_back(make_trained_pair(n + width, width, n, 0.02));
        others.emplace_back(make_trained_pair(n * width, width, n / 2, 0.02));
      }
    }
    const std::vector<Coded> other = good(context.encode("tight", pairs_of(others), nullptr));
    for (const char* codec : {"tight", "gaps", "adaptive", "auto"}) {
      const std::vector<Coded> coded = good(context.encode(codec, pairs_of(arrays), nullptr));
      const std::vector<Patch> patches = patches_of(arrays, coded);
      const std::vector<std::function<Status()>> between = {
          [] { return Status(); },
          [&] { return context.encode("tight", pairs_of(others), nullptr).status(); },
          [&] { return context.check(patches_of(others, other), nullptr); },
          [&] { return context.check(patches, nullptr); },
          [&] {
            const Contents contents{arrays[2].after(), arrays[2].dtype, arrays[2].size()};
            return context.digests({&contents, 1}, nullptr).status();
          },
          [&] {  // fails, and is forgotten
            std::vector<Coded> damaged = coded;
            damaged.back().payload.pop_back();
            const Status status = context.check(patches_of(arrays, damaged), nullptr);
            return status.code() == Code::kCorruption ? Status() : status;
          }};
      const auto make_old_again = [&] {
        for (const BothSides& array : arrays) {
          ASSERT_GOOD(
              copy(array.old_array.data(), array.host.old_bytes.data(), array.size(), nullptr));
        }
        ASSERT_GOOD(wait(nullptr));
      };
      for (size_t k = 0; k < between.size(); ++k) {
        SCOPED_TRACE(std::string(codec) + ", " + std::to_string(k));
        ASSERT_GOOD(context.check(patches, nullptr));
        expect_unchanged(arrays);
        ASSERT_GOOD(between[k]());
        ASSERT_GOOD(context.apply_checked(patches, nullptr));
        expect_patched(arrays);
        make_old_again();
        // The results are used up: this apply reads the payloads itself.
        ASSERT_GOOD(context.apply_checked(patches, nullptr));
        expect_patched(arrays);
        make_old_again();
      }
    }
  }
}

// Changes decoded by a check stay on the device within the limit for all widths together, and are
// reused.
TEST_F(ContextTest, KeepsDecodedChangesWithinItsLimit) {
  std::vector<BothSides> arrays;
  for (const unsigned width : {1U, 2U, 4U, 8U}) {
    arrays.emplace_back(make_trained_pair(width, width, 2'000'000, 0.02));
  }
  const std::vector<Coded> coded = good(make_context().encode("tight", pairs_of(arrays), nullptr));
  const std::vector<Patch> patches = patches_of(arrays, coded);
  Context all = make_context(8 * kMiB);
  EXPECT_EQ(all.kept_bytes(), 0);
  ASSERT_GOOD(all.check(patches, nullptr));
  const uint64_t needed = all.kept_bytes();
  EXPECT_GT(needed, 4 * 40'000 * 4);
  EXPECT_LT(needed, 8 * kMiB);
  ASSERT_GOOD(all.check(patches, nullptr));
  EXPECT_EQ(all.kept_bytes(), needed);
  for (const uint64_t limit : {uint64_t{0}, needed / 3, needed / 2, needed}) {
    Context some = make_context(8 * kMiB, limit);
    ASSERT_GOOD(some.check(patches, nullptr));
    EXPECT_LE(some.kept_bytes(), limit);
    EXPECT_EQ(some.kept_bytes() == needed, limit == needed);
    std::vector<std::optional<Digest>> digests;
    ASSERT_GOOD(some.apply_checked(patches, nullptr, &digests));
    for (size_t i = 0; i < arrays.size(); ++i) {
      ASSERT_TRUE(digests[i].has_value());
      EXPECT_EQ(*digests[i], digest_of(DigestKind::kSum128, arrays[i].host.new_bytes)) << i;
    }
    expect_patched(arrays);
    for (BothSides& array : arrays) {
      ASSERT_GOOD(copy(array.old_array.data(), array.host.old_bytes.data(), array.size(), nullptr));
    }
  }
}

// All-or-nothing applies do not rely on an earlier check of the payloads.
TEST_F(ContextTest, RereadsPayloadsThatChangeAfterTheCheck) {
  Context context = make_context();
  std::vector<BothSides> arrays;
  for (size_t i = 0; i < 3; ++i) arrays.emplace_back(make_pair(i, 2, 700'000, 0.01));
  std::vector<Coded> coded = good(context.encode("tight", pairs_of(arrays), nullptr));
  const std::vector<Patch> patches = patches_of(arrays, coded);
  ASSERT_GOOD(context.check(patches, nullptr));
  for (size_t at = 40; at < coded[1].payload.size(); at += 3) coded[1].payload[at] ^= 0x5a;
  EXPECT_EQ(context.apply(patches, nullptr).code(), Code::kCorruption);
  expect_unchanged(arrays);
}

TEST_F(ContextTest, MemoryStaysWithinTheScratch) {
  const uint64_t scratch = 64 * kMiB, kept = 3 * kMiB;
  Context context = make_context(scratch, kept);
  std::vector<BothSides> arrays;
  for (size_t i = 0; i < 8; ++i) arrays.emplace_back(make_pair(i, 2, 4'000'000, 0.05));
  for (const char* codec : {"gaps", "tight", "adaptive", "auto", "gaps"}) {
    const auto coded = context.encode(codec, pairs_of(arrays), nullptr);
    ASSERT_TRUE(coded.ok()) << codec << ": " << coded.status().to_string();
    EXPECT_LE(ContextInternals::of(context).workspace.device_bytes(), scratch + scratch / 16)
        << codec;
    ASSERT_GOOD(context.apply(patches_of(arrays, *coded), nullptr));
    EXPECT_LE(ContextInternals::of(context).workspace.device_bytes(), scratch) << codec;
    EXPECT_LE(context.kept_bytes(), kept);
    expect_patched(arrays);
    for (BothSides& array : arrays) array = BothSides(array.host);
  }
}

TEST_F(ContextTest, FetchesAnyBytes) {
  Context context = make_context(8 * kMiB);
  Random random(1);
  for (const DType dtype : {DType::kBF16, DType::kF32, DType::kF16}) {
    const size_t n = 6'000'000;
    const WideFloats wide = make_wide(3, dtype == DType::kBF16 ? DType::kF16 : dtype, n);
    const OnDevice array(dtype == DType::kBF16 ? wide.rounded : wide.wide);
    const Contents contents{{dtype, array.data()}, DType::kBF16, 2 * n};
    for (unsigned round = 0; round < 20; ++round) {
      const uint64_t offset = round == 0 ? 0 : random() % (2 * n);
      const uint64_t size = round == 0 ? 2 * n : random() % (2 * n - offset + 1);
      std::vector<uint8_t> out(size, 0xee);
      ASSERT_GOOD(context.fetch(contents, offset, out, nullptr));
      ASSERT_TRUE(std::equal(out.begin(), out.end(), wide.rounded.begin() + ptrdiff_t(offset)))
          << offset << " " << size;
    }
    std::vector<uint8_t> out(2);
    EXPECT_EQ(context.fetch(contents, 2 * n - 1, out, nullptr).code(), Code::kInvalidArgument);
  }
}

TEST_F(ContextTest, SendsBytes) {
  Context context = make_context();
  for (const size_t size : {size_t{0}, size_t{100'001}, 16 * kMiB, 40 * kMiB + 3}) {  // in pieces
    const std::vector<uint8_t> bytes = make_pair(1, 1, size, 0).old_bytes;
    const OnDevice to(std::vector<uint8_t>(bytes.size()), 5);
    ASSERT_GOOD(context.send(bytes, to.data(), nullptr));
    EXPECT_TRUE(to.fetch() == bytes) << size;
  }
}

TEST_F(ContextTest, ErrorsNameTheMistake) {
  Context context = make_context();
  const BothSides array(make_pair(1, 2, 100, 0.1));
  const auto refuse = [&](const Pair& pair, std::string_view words) {
    const Pair pairs[] = {array.pair(), pair};
    const Status status = context.encode("tight", pairs, nullptr).status();
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << status.to_string();
    EXPECT_TRUE(mentions(status, words) && mentions(status, "pair 1")) << status.to_string();
  };
  refuse({array.before(), {DType::kF64, array.new_array.data()}}, "F64 cannot be read as BF16");
  refuse({{DType::kF32, array.old_array.data(), 100}, array.after()}, "BF16 cannot be read as F32");
  refuse({{DType::kBF16, nullptr, 200}, array.after()}, "null");
  refuse({array.before(), {DType::kBF16, nullptr}}, "null");
  refuse({{DType::kBF16, array.old_array.data(), 199}, array.after()}, "multiple of 2");
  EXPECT_EQ(context.encode("best", {}, nullptr).status().code(), Code::kInvalidArgument);
  const Patch patch{array.before(), "newer", {}};
  EXPECT_EQ(context.apply({&patch, 1}, nullptr).code(), Code::kUnsupported);
  ContextOptions options;
  options.scratch_bytes = 1000;
  EXPECT_EQ(Context::create(options).status().code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace deltawire::cuda
