// Compares the device with the CPU on random input: encoding, applying, damaged payloads, digests.
// Runs for two seconds, or DELTAWIRE_FUZZ_SECONDS; DELTAWIRE_FUZZ_SEED repeats a run.
#include <chrono>
#include <cstdlib>

#include "codec/cuda/exponents_encode.h"
#include "cuda/contexts.h"

namespace deltawire::cuda {
namespace {

uint64_t from_environment(const char* name, uint64_t otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

size_t any_size(Random& random) {
  switch (random() % 6) {
    case 0:
      return random() % 70;
    case 1:
      return random() % 5000;
    case 2:
      return (uint64_t{1} << random() % 19) + random() % 3 - 1;
    case 3:
      return 262'143 + random() % 3;
    case 4:
      return random() % 100'000;
    default:
      return random() % 900'000;
  }
}

double any_density(Random& random) {
  constexpr double kDensities[] = {0, 0.00002, 0.001, 0.012, 0.012, 0.05, 0.4, 1};
  return kDensities[random() % std::size(kDensities)];
}

constexpr const char* kFuzzedCodecs[] = {"tight", "gaps", "exponents", "adaptive"};

std::vector<BothSides> any_arrays(Random& random) {
  std::vector<BothSides> arrays;
  for (uint64_t count = 1 + random() % 8; count > 0; --count) {
    const unsigned width = 1U << random() % 4;
    const Content content = random() % 4 == 0 ? Content::kNoise : Content::kWeights;
    const size_t n = any_size(random);
    const double density = any_density(random);
    arrays.emplace_back(random() % 3 == 0 ? make_trained_pair(random(), width, n, density)
                                          : make_pair(random(), width, n, density, content),
                        random() % 3 == 0 ? random() % 17 : 0);
  }
  return arrays;
}

std::vector<uint8_t> damage(Random& random, std::vector<uint8_t> payload) {
  switch (random() % 5) {
    case 0:
      payload.resize(random() % (payload.size() + 1));
      break;
    case 1:
      payload.resize(payload.size() + 1 + random() % 40, uint8_t(random()));
      break;
    default:
      for (uint64_t flips = 1 + random() % 4; flips > 0 && !payload.empty(); --flips) {
        // Headers are short and contain most information: half of the damage goes there.
        const size_t reach =
            random() % 2 == 0 ? std::min<size_t>(64, payload.size()) : payload.size();
        payload[random() % reach] ^= uint8_t(1 << random() % 8);
      }
  }
  return payload;
}

class Fuzzer {
 public:
  explicit Fuzzer(uint64_t seed) : random_(seed) {}

  // One batch of arrays through all operations.
  void run() {
    Context& context = contexts_[random_() % std::size(contexts_)];
    const std::vector<BothSides> arrays = any_arrays(random_);
    const std::string codec = kFuzzedCodecs[random_() % std::size(kFuzzedCodecs)];
    const auto coded = context.encode(codec, pairs_of(arrays), nullptr);
    ASSERT_TRUE(coded.ok()) << codec << ": " << coded.status().to_string();
    for (size_t i = 0; i < arrays.size(); ++i) {
      const Encoded expected = cpu_encode(codec, arrays[i].dtype, arrays[i].host);
      ASSERT_EQ((*coded)[i].num_changed, expected.num_changed) << codec << ", array " << i;
      ASSERT_TRUE((*coded)[i].payload == expected.payload) << codec << ", array " << i;
      if (codec == "exponents") expect_whole_payload(arrays[i], expected.payload);
    }
    expect_digests(context, arrays);
    apply_damaged(context, arrays, *coded);
  }

 private:
  // Pairs with this codec are encoded by the host; whole arrays by the device.
  void expect_whole_payload(const BothSides& array, const std::vector<uint8_t>& expected) {
    const Layout layout = layout_of(array.dtype);
    const auto payload =
        encode_whole({layout, array.new_array.data(), array.size() / layout.width}, {}, nullptr);
    ASSERT_TRUE(payload.ok()) << payload.status().to_string();
    ASSERT_TRUE(*payload == expected);
  }

  void expect_digests(Context& context, const std::vector<BothSides>& arrays) {
    std::vector<Contents> contents;
    for (const BothSides& array : arrays)
      contents.push_back({array.after(), array.dtype, array.size()});
    const auto digests = context.digests(contents, nullptr);
    ASSERT_TRUE(digests.ok()) << digests.status().to_string();
    for (size_t i = 0; i < arrays.size(); ++i) {
      ASSERT_EQ((*digests)[i], digest_of(DigestKind::kSum128, arrays[i].host.new_bytes)) << i;
    }
  }

  // Either nothing is written and the CPU detects the damage, too, or both give the same result.
  void apply_damaged(Context& context, const std::vector<BothSides>& arrays,
                     std::vector<Coded> coded) {
    const size_t bad = random_() % arrays.size();
    const bool damaged = random_() % 4 != 0;
    if (damaged) coded[bad].payload = damage(random_, std::move(coded[bad].payload));
    std::vector<std::vector<uint8_t>> expected;
    bool sound = true;
    for (size_t i = 0; i < arrays.size(); ++i) {
      expected.push_back(arrays[i].host.old_bytes);
      sound &= find_codec(coded[i].codec)
                   ->apply(layout_of(arrays[i].dtype), coded[i].payload, expected.back(), nullptr)
                   .ok();
    }
    const Status status = context.apply(patches_of(arrays, coded), nullptr);
    ASSERT_EQ(status.ok(), sound) << coded[bad].codec << ": " << status.to_string();
    if (!sound) {
      ASSERT_EQ(status.code(), Code::kCorruption) << status.to_string();
    }
    for (size_t i = 0; i < arrays.size(); ++i) {
      ASSERT_TRUE(arrays[i].old_array.fetch() == (sound ? expected[i] : arrays[i].host.old_bytes))
          << coded[i].codec << ", array " << i << (sound ? ", patched" : ", not to be touched");
    }
  }

  Random random_;
  Context contexts_[2] = {make_context(8 * kMiB), make_context()};
};

TEST(DeviceFuzz, AgreesWithTheCpu) {
  SKIP_WITHOUT_GPU();
  using Clock = std::chrono::steady_clock;
  const auto limit = std::chrono::seconds(from_environment("DELTAWIRE_FUZZ_SECONDS", 2));
  const uint64_t first_seed = from_environment("DELTAWIRE_FUZZ_SEED", 1);
  const Clock::time_point end = Clock::now() + limit;
  uint64_t iterations = 0;
  for (uint64_t seed = first_seed; Clock::now() < end; ++seed) {
    SCOPED_TRACE("DELTAWIRE_FUZZ_SEED=" + std::to_string(seed));
    Fuzzer fuzzer(seed);
    for (unsigned i = 0; i < 16 && Clock::now() < end; ++i, ++iterations) {
      ASSERT_NO_FATAL_FAILURE(fuzzer.run());
    }
  }
  std::printf("%llu iterations\n", static_cast<unsigned long long>(iterations));
}

}  // namespace
}  // namespace deltawire::cuda
