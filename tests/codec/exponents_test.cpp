// Whole arrays: sizes, boundaries, values, and hostile payloads.
#include "codec/exponents.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "codec/choose.h"
#include "codec_arrays.h"

namespace deltawire {
namespace {

constexpr Layout kBf16{2, 7, 0xff}, kF16{2, 10, 0x1f}, kF32{4, 23, 0xff};

template <class T>
Bytes bytes_of(const std::vector<T>& v) {
  return {reinterpret_cast<const uint8_t*>(v.data()), v.size() * sizeof(T)};
}

// The top bits of normally distributed floats, like real weights.
std::vector<uint8_t> make_weights(Layout layout, size_t n, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal(0, 0.02F);
  std::vector<uint8_t> bytes(n * layout.width);
  for (size_t i = 0; i < n; ++i) {
    const float value = normal(random);
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    if (layout.key_mask == 0x1f) {  // half floats, without rounding
      const int exponent = int(bits >> 23 & 0xff) - 127 + 15;
      bits = (bits >> 16 & 0x8000) | uint32_t(std::clamp(exponent, 0, 30)) << 10 |
             (bits >> 13 & 0x3ff);
      std::memcpy(bytes.data() + i * 2, &bits, 2);
    } else {
      bits >>= layout.width == 2 ? 16 : 0;
      std::memcpy(bytes.data() + i * layout.width, &bits, layout.width);
    }
  }
  return bytes;
}

std::vector<uint8_t> encode(Layout layout, Bytes array, ThreadPool* pool = nullptr) {
  return exponents::encode_array(layout, array, nullptr, pool).value();
}

void expect_round_trip(Layout layout, Bytes array) {
  ThreadPool pool(4);
  const std::vector<uint8_t> payload = encode(layout, array);
  ASSERT_EQ(payload, encode(layout, array, &pool));
  WalledBuffer back(array.size());
  const Status status = exponents::decode_array(layout, payload, back.span(), nullptr, &pool);
  ASSERT_TRUE(status.ok()) << status.to_string();
  EXPECT_TRUE(same_bytes(array, back.span()));
  EXPECT_TRUE(back.walls_stand());
}

TEST(Exponents, RoundTripsAllFormatsAndSizes) {
  for (const Layout layout : {kBf16, kF16, kF32}) {
    for (const size_t n : {0, 1, 7, 9, 511, 513, 65535, 65536, 65537, 200'001}) {
      SCOPED_TRACE("width " + std::to_string(layout.width) + ", elements " + std::to_string(n));
      expect_round_trip(layout, make_weights(layout, n, n));
    }
  }
}

TEST(Exponents, CompressesWeights) {
  const auto share = [](Layout layout) {
    const std::vector<uint8_t> weights = make_weights(layout, 1'000'000, 1);
    return double(weights.size()) / double(encode(layout, weights).size());
  };
  EXPECT_GT(share(kBf16), 1.42);
  EXPECT_GT(share(kF16), 1.11);
  EXPECT_GT(share(kF32), 1.16);
}

TEST(Exponents, RoundTripsEveryBf16AndF16) {
  std::vector<uint16_t> all(65536);
  for (size_t i = 0; i < all.size(); ++i) all[i] = uint16_t(i * 40503);
  expect_round_trip(kBf16, bytes_of(all));
  expect_round_trip(kF16, bytes_of(all));
}

TEST(Exponents, RoundTripsExtremeExponents) {
  for (const uint16_t bits : {0x0000, 0x8000, 0x3f80, 0x7f80, 0xffff}) {
    const std::vector<uint16_t> same(70'000, bits);
    expect_round_trip(kBf16, bytes_of(same));
    EXPECT_LT(encode(kBf16, bytes_of(same)).size(), same.size() * 1.4);
    expect_round_trip(kF16, bytes_of(same));
  }
}

// Incompressible blocks are stored raw, and so are incompressible tensors.
TEST(Exponents, StoresNoiseRaw) {
  std::mt19937_64 random(3);
  std::vector<uint64_t> noise(100'000);
  for (uint64_t& word : noise) word = random();
  for (const Layout layout : {kBf16, kF32}) {
    expect_round_trip(layout, bytes_of(noise));
    const auto choice = encode_whole_array(layout, bytes_of(noise), false, nullptr);
    ASSERT_TRUE(choice.ok());
    EXPECT_EQ(choice->codec, CodecId::kRaw);
    EXPECT_TRUE(same_bytes(bytes_of(noise), choice->encoded.payload));
  }
  const std::vector<uint8_t> weights = make_weights(kBf16, 10'000, 4);
  EXPECT_EQ(encode_whole_array(kBf16, weights, false, nullptr)->codec, CodecId::kExponents);
  EXPECT_EQ(encode_whole_array(kBf16, weights, true, nullptr)->codec, CodecId::kRaw);
}

// Blocks decode independently: bytes outside a range are never read.
TEST(Exponents, DecodesBlocksIndependently) {
  const std::vector<uint8_t> weights = make_weights(kBf16, 200'001, 5);
  std::vector<uint8_t> payload = encode(kBf16, weights);
  const auto directory =
      exponents::Directory::parse(kBf16, weights.size(), payload, payload.size()).value();
  ASSERT_EQ(directory.num_blocks(), 4U);
  for (size_t block = 0; block < directory.num_blocks(); ++block) {
    const size_t begin = size_t(directory.block_begin(block));
    const std::vector<uint8_t> own(payload.begin() + long(begin),
                                   payload.begin() + long(directory.block_end(block)));
    const size_t at = size_t(directory.array_begin(block));
    std::vector<uint8_t> back(size_t(directory.array_end(block)) - at);
    ASSERT_TRUE(exponents::read_block(kBf16, own, back).ok());
    EXPECT_TRUE(same_bytes(Bytes(weights).subspan(at, back.size()), back));
  }
}

// The bytes shown in docs/format.md.
TEST(Exponents, MatchesTheExampleInTheFormatDocument) {
  std::vector<uint16_t> weights = {0x3c00, 0x3b10, 0xbc22, 0x3980, 0x3a55, 0x3c7f, 0xb901, 0x3b00,
                                   0x3c11, 0xbb33, 0x0000, 0x3c44, 0x3990, 0xbc01, 0x3b77, 0x3c05};
  const std::vector<uint8_t> expected = {
      0x10, 0x18, 0,    0,    0,    0,    0,    0,    0,  // blocks of 2^16; one, 24 bytes
      0x72,                                               // keys 114 ... 120
      0x00, 0x10, 0xa2, 0x00, 0x55, 0x7f, 0x81, 0x00,     // signs and mantissas
      0x11, 0xb3, 0x00, 0x44, 0x10, 0x81, 0x77, 0x05,     //
      0x76, 0x8c, 0x02, 0xa6, 0xbe, 0xf4,                 // three bits each
      0x00};                                              // the key of 0x0000
  const auto encoded = encode(kBf16, bytes_of(weights));
  EXPECT_EQ(encoded, expected) << ::testing::PrintToString(encoded);
  std::vector<uint16_t> back(weights.size());
  ASSERT_TRUE(exponents::decode_array(kBf16, encoded,
                                      {reinterpret_cast<uint8_t*>(back.data()), back.size() * 2},
                                      nullptr, nullptr)
                  .ok());
  EXPECT_EQ(back, weights);
}

Status decode(const std::vector<uint8_t>& payload, size_t n, Layout layout = kBf16) {
  WalledBuffer data(n * layout.width);
  const WalledBuffer copy{Bytes(payload)};
  const Status status = exponents::decode_array(layout, copy.span(), data.span(), nullptr, nullptr);
  EXPECT_TRUE(data.walls_stand());
  EXPECT_TRUE(status.ok() || status.code() == Code::kCorruption) << status.to_string();
  return status;
}

TEST(HostileExponents, RejectsNamedDefects) {
  const size_t n = 70'000;
  const std::vector<uint8_t> good = encode(kBf16, make_weights(kBf16, n, 6));
  ASSERT_TRUE(decode(good, n).ok());
  const auto bad = [&](const auto& change) {
    std::vector<uint8_t> payload = good;
    change(&payload);
    return decode(payload, n).message();
  };
  using Blob = std::vector<uint8_t>;
  EXPECT_EQ(bad([](Blob* p) { p->clear(); }),
            "payload: expected a size of blocks, got the end of the payload");
  EXPECT_EQ(bad([](Blob* p) { (*p)[0] = 11; }), "block_log2: expected 12 to 20, got 11");
  EXPECT_EQ(bad([](Blob* p) { (*p)[0] = 64; }), "block_log2: expected 12 to 20, got 64");
  EXPECT_EQ(bad([](Blob* p) { p->resize(16); }), "payload size: expected at least 17, got 16");
  EXPECT_NE(bad([](Blob* p) { (*p)[0] = 20; }), "");  // one block: the directory is another
  EXPECT_NE(bad([](Blob* p) { (*p)[0] = 12; }), "");
  EXPECT_NE(bad([](Blob* p) { (*p)[8] = 1; }).find("end of a block: expected ascending ends"),
            std::string::npos);
  EXPECT_NE(bad([](Blob* p) { (*p)[9] -= 1; }).find("payload size"), std::string::npos);
  EXPECT_NE(bad([](Blob* p) { p->push_back(0); }).find("payload size"), std::string::npos);
  EXPECT_NE(bad([](Blob* p) { (*p)[1] += 1, (*p)[9] += 0; }), "");  // a block begins elsewhere
  EXPECT_EQ(bad([](Blob* p) { (*p)[17] = 250; }), "base: expected at most 249, got 250");
  EXPECT_NE(bad([](Blob* p) { p->back() = (*p)[17]; }), "");
}

TEST(HostileExponents, SurvivesTruncationAndBitFlips) {
  std::mt19937_64 random(9);
  for (const Layout layout : {kBf16, kF16, kF32}) {
    const size_t n = 5000;
    const std::vector<uint8_t> weights = make_weights(layout, n, 7);
    const std::vector<uint8_t> good = encode(layout, weights);
    for (size_t size = 0; size < good.size(); size += 1 + random() % 97) {
      EXPECT_FALSE(decode({good.begin(), good.begin() + long(size)}, n, layout).ok()) << size;
    }
    for (int i = 0; i < 3000; ++i) {  // Corruption, or another array: digests tell
      std::vector<uint8_t> payload = good;
      payload[random() % payload.size()] ^= uint8_t(1U << random() % 8);
      (void)decode(payload, n, layout);
    }
    for (int i = 0; i < 300; ++i) {
      std::vector<uint8_t> payload(random() % 200);
      for (uint8_t& byte : payload) byte = uint8_t(random());
      if (!payload.empty()) payload[0] = uint8_t(12 + random() % 9);
      EXPECT_FALSE(decode(payload, n, layout).ok());
    }
  }
}

}  // namespace
}  // namespace deltawire
