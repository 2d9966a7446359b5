// Promises of every codec: exact round trips for any width, size, density, alignment and number of
// threads.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cctype>
#include <string>

#include "codec/changes.h"
#include "codec/codec.h"
#include "codec_arrays.h"
#include "kernels/kernels.h"
#include "test_files.h"

namespace deltawire {
namespace {

constexpr unsigned kWidths[] = {1, 2, 4, 8};

ThreadPool& four_threads() {
  static ThreadPool pool(4);
  return pool;
}

void expect_round_trip(const Codec& codec, Layout layout, const ArrayPair& pair) {
  const Bytes before = pair.old_bytes.span();
  const Bytes after = pair.new_bytes.span();
  const auto encoded = codec.encode(layout, before, after, nullptr);
  ASSERT_TRUE(encoded.ok()) << encoded.status().to_string();
  EXPECT_EQ(encoded->num_changed, pair.num_changed);
  const auto by_threads = codec.encode(layout, before, after, &four_threads());
  ASSERT_TRUE(by_threads.ok()) << by_threads.status().to_string();
  EXPECT_TRUE(same_bytes(encoded->payload, by_threads->payload));
  EXPECT_EQ(by_threads->num_changed, pair.num_changed);

  const WalledBuffer payload{Bytes(encoded->payload)};  // at an odd address
  Changes first;
  for (ThreadPool* pool : {static_cast<ThreadPool*>(nullptr), &four_threads()}) {
    WalledBuffer patched(before);
    const Status applied = codec.apply(layout, payload.span(), patched.span(), pool);
    ASSERT_TRUE(applied.ok()) << applied.to_string();
    EXPECT_TRUE(same_bytes(after, patched.span()));
    EXPECT_TRUE(patched.walls_stand());

    const auto changes = codec.decode(layout, payload.span(), before, pool);
    ASSERT_TRUE(changes.ok()) << changes.status().to_string();
    EXPECT_EQ(changes->positions.size(), pair.num_changed);
    WalledBuffer scattered(before);
    const Status status = scatter_changes(layout.width, *changes, scattered.span(), pool);
    ASSERT_TRUE(status.ok()) << status.to_string();
    EXPECT_TRUE(same_bytes(after, scattered.span()));
    EXPECT_TRUE(scattered.walls_stand());
    if (pool == nullptr) first = *changes;
    EXPECT_EQ(first.positions, changes->positions);
    EXPECT_TRUE(same_bytes(first.values, changes->values));
  }
}

ThreadPool& two_workers() {
  static ThreadPool pool(2);
  return pool;
}

// Hashers passed to a codec see exactly the arrays and do not change the payload.
void expect_followed(const Codec& codec, Layout layout, const ArrayPair& pair, ThreadPool* pool) {
  constexpr DigestKind kind = DigestKind::kSum128;
  const Bytes before = pair.old_bytes.span(), after = pair.new_bytes.span();
  Hasher old_hasher(kind), new_hasher(kind);
  const auto encoded = codec.encode_hashed(layout, before, after, {&old_hasher, &new_hasher}, pool);
  ASSERT_TRUE(encoded.ok()) << encoded.status().to_string();
  EXPECT_TRUE(same_bytes(encoded->payload, codec.encode(layout, before, after, nullptr)->payload));
  EXPECT_EQ(old_hasher.finish(), digest_of(kind, before));
  EXPECT_EQ(new_hasher.finish(), digest_of(kind, after));

  WalledBuffer patched(before);
  Hasher hasher(kind);
  const Status applied =
      codec.apply_hashed(layout, encoded->payload, patched.span(), &hasher, pool);
  ASSERT_TRUE(applied.ok()) << applied.to_string();
  EXPECT_TRUE(same_bytes(after, patched.span()));
  EXPECT_EQ(hasher.finish(), digest_of(kind, after));
}

class EveryCodec : public ::testing::TestWithParam<const Codec*> {};

void try_sizes(const Codec& codec, std::initializer_list<size_t> sizes,
               std::initializer_list<double> densities) {
  for (const unsigned width : kWidths) {
    for (const size_t n : sizes) {
      for (const double density : densities) {
        SCOPED_TRACE("width " + std::to_string(width) + ", elements " + std::to_string(n) +
                     ", density " + std::to_string(density));
        expect_round_trip(codec, layout_of(width), make_arrays(width, n, density, n + width));
      }
    }
  }
}

TEST_P(EveryCodec, RoundTripsSmallArrays) {
  try_sizes(*GetParam(), {0, 1, 2, 3, 63, 64, 65, 127, 1000}, {0, 1e-4, 0.01, 0.5});
}

TEST_P(EveryCodec, RoundTripsAtSegmentBoundaries) {
  DW_LABEL(long);
  try_sizes(*GetParam(), {16383, 16384, 16385}, {0, 1e-4, 0.01, 0.5, 1});
}

TEST_P(EveryCodec, RoundTripsAtChunkBoundaries) {
  DW_LABEL(long);
  try_sizes(*GetParam(), {262143, 262144, 262145}, {1e-4, 0.01, 0.2});
}

TEST_P(EveryCodec, RoundTripsSeveralChunksAndARemainder) {
  DW_LABEL(long);
  try_sizes(*GetParam(), {600001}, {0, 1e-4, 0.01, 0.5, 1});
}

// One or more matrices, with tiles that the last columns or rows do not fill.
TEST_P(EveryCodec, RoundTripsMatrices) {
  DW_LABEL(long);
  struct Shape {
    uint32_t matrices, rows, columns;
  };
  for (const Shape& shape : {Shape{1, 512, 512},
                             {3, 300, 1344},
                             {2, 1025, 512},
                             {1, 513, 4096},
                             {1, 2100, 130},
                             {1, 20, 20000},
                             {40, 8, 128}}) {
    for (const unsigned width : kWidths) {
      for (const double density : {0.0, 1e-4, 0.02}) {
        SCOPED_TRACE(std::to_string(shape.matrices) + " of " + std::to_string(shape.rows) + " x " +
                     std::to_string(shape.columns) + ", width " + std::to_string(width) +
                     ", density " + std::to_string(density));
        Layout layout = layout_of(width);
        layout.rows = shape.rows;
        layout.columns = shape.columns;
        const size_t n = size_t{shape.matrices} * shape.rows * shape.columns;
        const ArrayPair pair = make_arrays(width, n, density, n + width);
        expect_round_trip(*GetParam(), layout, pair);
        if (width == 2) expect_followed(*GetParam(), layout, pair, &two_workers());
      }
    }
  }
}

// Single changes at both ends and in the middle: gaps over 65535, empty chunks.
TEST_P(EveryCodec, RoundTripsSingleChangesFarApart) {
  DW_LABEL(long);
  constexpr size_t n = 5'000'001;  // 10 MB
  ArrayPair pair = make_arrays(2, n, 0, 7);
  for (const size_t i : {size_t{0}, size_t{2'500'000}, n - 1}) {
    set_element(pair.new_bytes.span(), 2, i, get_element(pair.old_bytes.span(), 2, i) ^ 0x8000);
    ++pair.num_changed;
    expect_round_trip(*GetParam(), layout_of(2), pair);
  }
}

TEST_P(EveryCodec, HashersSeeTheWholeArrays) {
  for (const size_t n : {0, 1, 1000, 300'000, 1'300'001}) {
    for (const double density : {0.0, 0.01, 1.0}) {
      SCOPED_TRACE("elements " + std::to_string(n) + ", density " + std::to_string(density));
      const ArrayPair pair = make_arrays(2, n, density, n);
      expect_followed(*GetParam(), layout_of(2), pair, nullptr);
      expect_followed(*GetParam(), layout_of(2), pair, &two_workers());
    }
  }
}

TEST_P(EveryCodec, RoundTripsEveryPairOfBytes) {
  ArrayPair pair{WalledBuffer(65536), WalledBuffer(65536), 65536 - 256};
  for (size_t i = 0; i < 65536; ++i) {
    pair.old_bytes.span()[i] = uint8_t(i >> 8);
    pair.new_bytes.span()[i] = uint8_t(i);
  }
  expect_round_trip(*GetParam(), layout_of(1), pair);
}

TEST_P(EveryCodec, RoundTripsSpecialFloats) {
  // +-0, smallest subnormals, +-1 and the next, +-inf, quiet and signalling NaNs with payloads.
  const uint16_t specials[] = {0x0000, 0x8000, 0x0001, 0x8001, 0x3f80, 0x3f81, 0xbf80,
                               0x7f80, 0xff80, 0x7fc0, 0x7fc1, 0x7f81, 0xffff, 0x7fff};
  std::vector<uint16_t> before, after;
  uint64_t num_changed = 0;
  for (const uint16_t a : specials) {
    for (const uint16_t b : specials) {
      before.push_back(a);
      after.push_back(b);
      num_changed += a != b;
    }
  }
  const auto bytes = [](const std::vector<uint16_t>& v) {
    return Bytes(reinterpret_cast<const uint8_t*>(v.data()), v.size() * 2);
  };
  expect_round_trip(*GetParam(), layout_of(2),
                    {WalledBuffer(bytes(before)), WalledBuffer(bytes(after)), num_changed});
}

TEST_P(EveryCodec, RoundTripsAllZerosToAllOnes) {
  for (const unsigned width : kWidths) {
    ArrayPair pair{WalledBuffer(1000 * width), WalledBuffer(1000 * width), 1000};
    std::ranges::fill(pair.old_bytes.span(), uint8_t{0});
    std::ranges::fill(pair.new_bytes.span(), uint8_t{0xff});
    expect_round_trip(*GetParam(), layout_of(width), pair);
    std::swap(pair.old_bytes, pair.new_bytes);
    expect_round_trip(*GetParam(), layout_of(width), pair);
  }
}

TEST_P(EveryCodec, EveryTargetGivesTheSamePayload) {
  const std::string in_use(kernels().name);
  for (const unsigned width : kWidths) {
    const ArrayPair pair = make_arrays(width, 70'001, 0.02, 3);
    std::vector<std::vector<uint8_t>> payloads;
    for (const Kernels* target : available_kernels()) {
      ASSERT_TRUE(force_kernels(target->name));
      auto encoded = GetParam()->encode(layout_of(width), pair.old_bytes.span(),
                                        pair.new_bytes.span(), nullptr);
      ASSERT_TRUE(encoded.ok()) << encoded.status().to_string();
      payloads.push_back(encoded->payload);
      EXPECT_TRUE(same_bytes(payloads.front(), payloads.back())) << target->name;
      WalledBuffer patched(pair.old_bytes.span());
      ASSERT_TRUE(
          GetParam()->apply(layout_of(width), payloads.front(), patched.span(), nullptr).ok());
      EXPECT_TRUE(same_bytes(pair.new_bytes.span(), patched.span())) << target->name;
    }
  }
  ASSERT_TRUE(force_kernels(in_use));
}

TEST_P(EveryCodec, RejectsInvalidArguments) {
  const std::vector<uint8_t> ten(10), twelve(12);
  std::vector<uint8_t> data(10);
  for (const unsigned width : {0U, 3U, 16U, 4U}) {  // 4 does not divide 10
    Layout layout = layout_of(2);
    layout.width = uint8_t(width);
    EXPECT_EQ(GetParam()->encode(layout, ten, ten, nullptr).status().code(),
              Code::kInvalidArgument);
    EXPECT_EQ(GetParam()->apply(layout, ten, data, nullptr).code(), Code::kInvalidArgument);
    EXPECT_EQ(GetParam()->decode(layout, ten, ten, nullptr).status().code(),
              Code::kInvalidArgument);
  }
  EXPECT_EQ(GetParam()->encode(layout_of(2), ten, twelve, nullptr).status().code(),
            Code::kInvalidArgument);
}

TEST_P(EveryCodec, UnchangedArraysGiveAnEmptyPayload) {
  // These store the whole array in any case.
  if (GetParam()->id() == CodecId::kRaw || GetParam()->id() == CodecId::kExponents) return;
  const ArrayPair pair = make_arrays(2, 1000, 0, 1);
  const auto encoded =
      GetParam()->encode(layout_of(2), pair.old_bytes.span(), pair.new_bytes.span(), nullptr);
  ASSERT_TRUE(encoded.ok());
  EXPECT_TRUE(encoded->payload.empty());
}

std::string test_name(const ::testing::TestParamInfo<const Codec*>& info) {
  std::string name(info.param->name());
  std::erase_if(name, [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; });
  return name;
}

INSTANTIATE_TEST_SUITE_P(All, EveryCodec,
                         ::testing::ValuesIn(all_codecs().begin(), all_codecs().end()), test_name);

TEST(Registry, FindsCodecsByIdAndName) {
  uint8_t id = 0;
  for (const Codec* codec : all_codecs()) {
    EXPECT_EQ(codec->id(), CodecId{id++});  // ordered, no holes
    EXPECT_EQ(find_codec(codec->id()), codec);
    EXPECT_EQ(find_codec(codec->name()), codec);
  }
  EXPECT_EQ(find_codec(CodecId{255}), nullptr);
  EXPECT_EQ(find_codec("gzip"), nullptr);
  EXPECT_EQ(find_codec(""), nullptr);
}

// Arrays of more than 2^31 - 1 elements take no memory here: untouched pages read as zero.
TEST(Gaps, SpanHugeArrays) {
  DW_LABEL(long);
  constexpr size_t n = (size_t{1} << 31) + 5;
  const auto map = [] {
    void* p = mmap(nullptr, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                   -1, 0);
    return p == MAP_FAILED ? MutableBytes() : MutableBytes(static_cast<uint8_t*>(p), n);
  };
  const MutableBytes before = map(), after = map();
  if (before.empty() || after.empty()) GTEST_SKIP() << "no address space";
  after[1] = 9;
  after[n - 1] = 7;
  const Codec& codec = *find_codec("gaps");
  const auto encoded = codec.encode(layout_of(1), before, after, &four_threads());
  ASSERT_TRUE(encoded.ok()) << encoded.status().to_string();
  EXPECT_EQ(encoded->payload.size(), 2 + 8 + 2U);  // width, count, two gaps and two values
  const auto changes = codec.decode(layout_of(1), encoded->payload, before, nullptr);
  ASSERT_TRUE(changes.ok()) << changes.status().to_string();
  EXPECT_EQ(changes->positions, (std::vector<uint64_t>{1, n - 1}));
  ASSERT_TRUE(codec.apply(layout_of(1), encoded->payload, before, nullptr).ok());
  EXPECT_EQ(before[1], 9);
  EXPECT_EQ(before[n - 1], 7);
  munmap(before.data(), n);
  munmap(after.data(), n);
}

}  // namespace
}  // namespace deltawire
