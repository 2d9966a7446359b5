#include "deltawire/digest.h"

#include <numeric>

#include "base/bytes.h"
#include "digest/sums.h"
#include "kernels/kernels.h"
#include "kernels/sum_math.h"
#include "test_files.h"

namespace deltawire::testing {
namespace {

std::string hex(DigestKind kind, std::string_view text) {
  Hasher hasher(kind);
  hasher.update(text);
  return hasher.finish().hex();
}

TEST(Digest, MatchesKnownValues) {
  EXPECT_EQ(hex(DigestKind::kXxh3_128, ""), "99aa06d3014798d86001c324468d497f");
  EXPECT_EQ(hex(DigestKind::kSha256, "abc"),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(Digest, IsTheSameInOnePassOrInPieces) {
  std::vector<uint8_t> bytes(100000);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = uint8_t(i * i >> 3);
  for (const DigestKind kind : {DigestKind::kXxh3_128, DigestKind::kSha256, DigestKind::kSum128}) {
    for (const size_t size : {0, 1, 16, 17, 128, 129, 240, 241, 1024, 1025, 65535, 100000}) {
      const std::span<const uint8_t> part(bytes.data(), size_t(size));
      Hasher pieces(kind);
      for (size_t at = 0; at < part.size(); at += 777)
        pieces.update(part.subspan(at, std::min<size_t>(777, part.size() - at)));
      EXPECT_EQ(digest_of(kind, part), pieces.finish()) << digest_name(kind) << " " << size;
    }
  }
}

TEST(Digest, ParsesItsHex) {
  const Digest digest = digest_of(DigestKind::kXxh3_128, {});
  EXPECT_EQ(parse_digest(DigestKind::kXxh3_128, digest.hex()).value(), digest);
  EXPECT_EQ(parse_digest(DigestKind::kXxh3_128, "99aa").status().code(), Code::kCorruption);
  EXPECT_EQ(parse_digest(DigestKind::kXxh3_128, std::string(32, 'G')).status().code(),
            Code::kCorruption);
}

// ---- sum128: known values, the same bits on every target, and sums that add up for any partition
// of a tensor.

std::vector<uint8_t> random_bytes(size_t size, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<uint8_t> bytes(size);
  for (uint8_t& byte : bytes) byte = uint8_t(random());
  return bytes;
}

Digest digest(Bytes bytes) { return digest_of(DigestKind::kSum128, bytes); }

Digest finished(const Sums& sums, size_t size) { return must(sums.finish(size)); }

// Computed by an independent program written from docs/format.md; see tests/interop.
TEST(Sum128, MatchesKnownValues) {
  const auto hex = [](std::string_view text) {
    return digest({reinterpret_cast<const uint8_t*>(text.data()), text.size()}).hex();
  };
  EXPECT_EQ(hex(""), "af9f427fcf91f878f0762f8d520af2d6");
  EXPECT_EQ(hex("a"), "70e604aaa2db8ac60b40618002c1f75b");
  EXPECT_EQ(hex("deltawire"), "984e45e7d98b07a1b0641f8f65541710");
  EXPECT_EQ(hex(std::string(512, '\0')), "1a9440231a21c01f51f91106182d1b4e");
  std::vector<uint8_t> bytes(100000);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = uint8_t(i * i >> 3);
  EXPECT_EQ(digest(bytes).hex(), "8e3d1096ea802a1d240201e6c7d02642");
}

TEST(Sum128, EveryTargetMatchesTheDefinition) {
  const std::vector<uint8_t> bytes = random_bytes(8 * 700 + 9, 1);
  std::mt19937 random(2);
  for (int round = 0; round < 300; ++round) {
    const size_t words = random() % 700, at = random() % 9;
    const uint64_t position =
        round % 3 == 0 ? random() % 200 : (uint64_t{random()} << 20) + random() % 64;
    uint64_t expected[2] = {5, 7};
    for (size_t i = 0; i < words; ++i) {
      for (size_t lane = 0; lane < 2; ++lane) {
        expected[lane] +=
            sum128::term(lane, position + i, load_le<uint64_t>(bytes.data() + at + 8 * i));
      }
    }
    for (const Kernels* target : available_kernels()) {
      uint64_t got[2] = {5, 7};
      target->sum(bytes.data() + at, words, position, got);
      ASSERT_EQ(got[0], expected[0]) << target->name << ": " << words << " words at " << position;
      ASSERT_EQ(got[1], expected[1]) << target->name << ": " << words << " words at " << position;
    }
  }
}

// ---- partitions

// Rows of a box of a 3-d tensor: experts, rows, columns.
struct Cut {
  size_t first[3], count[3];
};

void add_box(const Cut& cut, const size_t shape[3], size_t width, Bytes tensor, Sums* sums) {
  for (size_t e = 0; e < cut.count[0]; ++e) {
    for (size_t r = 0; r < cut.count[1]; ++r) {
      const size_t element =
          ((cut.first[0] + e) * shape[1] + cut.first[1] + r) * shape[2] + cut.first[2];
      sums->add(tensor.subspan(element * width, cut.count[2] * width), element * width);
    }
  }
}

// 0 = c0 < c1 < ... = size
std::vector<size_t> random_cuts(size_t size, size_t pieces, std::mt19937* random) {
  std::set<size_t> cuts = {0, size};
  for (size_t i = 1; i < pieces; ++i) cuts.insert((*random)() % (size + 1));
  return {cuts.begin(), cuts.end()};
}

TEST(Sums, AddUpForAnySharding) {
  std::mt19937 random(3);
  for (int round = 0; round < 400; ++round) {
    const size_t width = size_t{1} << random() % 4;
    const size_t shape[3] = {1 + random() % 4, 1 + random() % 9, 1 + random() % 90};
    const size_t size = shape[0] * shape[1] * shape[2] * width;
    const std::vector<uint8_t> tensor = random_bytes(size, uint32_t(round));
    std::vector<std::string> shards;
    std::vector<size_t> cuts[3];
    for (size_t d = 0; d < 3; ++d) cuts[d] = random_cuts(shape[d], 1 + random() % 4, &random);
    for (size_t e = 0; e + 1 < cuts[0].size(); ++e) {
      for (size_t r = 0; r + 1 < cuts[1].size(); ++r) {
        for (size_t c = 0; c + 1 < cuts[2].size(); ++c) {
          Sums own;
          add_box({{cuts[0][e], cuts[1][r], cuts[2][c]},
                   {cuts[0][e + 1] - cuts[0][e], cuts[1][r + 1] - cuts[1][r],
                    cuts[2][c + 1] - cuts[2][c]}},
                  shape, width, tensor, &own);
          shards.push_back(own.to_string());
        }
      }
    }
    std::shuffle(shards.begin(), shards.end(), random);
    Sums all;
    for (const std::string& text : shards) {
      const Result<Sums> parsed = Sums::parse(text);
      ASSERT_TRUE(parsed.ok()) << text;
      ASSERT_EQ(parsed->to_string(), text);
      all.add(*parsed);
    }
    ASSERT_EQ(finished(all, size), digest(tensor)) << "round " << round;
  }
}

TEST(Sums, AddUpForUnevenFlatShards) {
  std::mt19937 random(4);
  for (int round = 0; round < 200; ++round) {
    const std::vector<uint8_t> tensor = random_bytes(1 + random() % 3000, uint32_t(round));
    const std::vector<size_t> cuts = random_cuts(tensor.size(), 1 + random() % 12, &random);
    Sums all;
    for (size_t i = cuts.size() - 1; i-- > 0;) {
      Sums own;
      own.add(Bytes(tensor).subspan(cuts[i], cuts[i + 1] - cuts[i]), cuts[i]);
      all.add(own);
    }
    ASSERT_EQ(finished(all, tensor.size()), digest(tensor));
  }
}

// Every word is split between two shards: adding them must not take quadratic time.
TEST(Sums, AddUpWithManySplitWords) {
  constexpr size_t kRows = 300000, kColumns = 9, kCut = 4;
  const std::vector<uint8_t> tensor = random_bytes(kRows * kColumns, 12);
  Sums left, right;
  for (size_t row = 0; row < kRows; ++row) {
    left.add(Bytes(tensor).subspan(row * kColumns, kCut), row * kColumns);
    right.add(Bytes(tensor).subspan(row * kColumns + kCut, kColumns - kCut), row * kColumns + kCut);
  }
  left.add(right);
  EXPECT_EQ(finished(left, tensor.size()), digest(tensor));
}

TEST(Sums, RejectMissingOrRepeatedBytes) {
  const std::vector<uint8_t> tensor = random_bytes(100, 5);
  const Bytes bytes(tensor);
  const auto fails = [](const Sums& sums) { return sums.finish(100).status().message(); };
  Sums less;
  less.add(bytes.subspan(0, 90), 0);
  EXPECT_EQ(fails(less), "sums: 90 bytes were added, the tensor has 100");
  Sums more = less;
  more.add(bytes.subspan(80), 80);
  EXPECT_EQ(fails(more), "sums: 110 bytes were added, the tensor has 100");
  Sums shifted;  // 100 bytes, but not those
  shifted.add(bytes.subspan(0, 50), 0);
  shifted.add(bytes.subspan(49, 49), 49);
  shifted.add(bytes.subspan(99), 99);
  EXPECT_EQ(fails(shifted), "sums: some bytes were added twice");
  Sums hole;
  hole.add(bytes.subspan(0, 50), 0);
  hole.add(bytes.subspan(52), 52);
  hole.add(bytes.subspan(8, 2), 200);
  EXPECT_EQ(fails(hole), "sums: bytes are missing at 48");
}

TEST(Sums, RejectInvalidText) {
  Sums sums;
  sums.add(random_bytes(13, 6), 3);
  const std::string good = sums.to_string();
  ASSERT_TRUE(Sums::parse(good).ok());
  for (size_t size = 0; size < good.size(); ++size) {
    const Result<Sums> cut = Sums::parse(std::string_view(good).substr(0, size));
    EXPECT_TRUE(!cut.ok() || *cut != sums) << size;
  }
  for (const char* bad :
       {"", "1", "1:2:3", "1:2:3:0,", "x:2:3:0", "1:2:3:0,1:ff:0", "1:2:3:0,1:1:100",
        "1:2:3:0,5:1:1,5:1:1", "1:2:3:0,1:0:0", "11111111111111111:2:3:0", " 1:2:3:0", "1,2,3,0",
        "1:2:3:5", "1:2:1:0,1:3:101"}) {
    EXPECT_EQ(Sums::parse(bad).status().code(), Code::kCorruption) << bad;
  }
}

// ---- changes

TEST(Sums, UpdateForReplacedWords) {
  std::vector<uint8_t> tensor = random_bytes(4000, 7);
  Sums sums;
  sums.add(tensor, 0);
  std::mt19937 random(8);
  for (int i = 0; i < 100; ++i) {
    const size_t position = random() % 500;
    const auto before = load_le<uint64_t>(tensor.data() + 8 * position);
    const uint64_t after = before ^ uint64_t { random() } << random() % 32;
    uint8_t bytes[8];
    store_le(bytes, after);
    const uint64_t positions[] = {position};
    replace_elements(8, tensor, positions, bytes, nullptr, &sums);
    store_le(tensor.data() + 8 * position, after);
  }
  EXPECT_EQ(finished(sums, tensor.size()), digest(tensor));
}

TEST(Sums, UpdateForReplacedElements) {
  ThreadPool pool(3);
  std::mt19937 random(11);
  for (const unsigned width : {1U, 2U, 4U, 8U}) {
    for (const size_t elements : {1U, 7U, 1001U, 200003U}) {
      std::vector<uint8_t> tensor = random_bytes(elements * width, width);
      const std::vector<uint8_t> before = tensor;
      std::vector<uint64_t> positions;
      std::vector<uint8_t> values;
      for (size_t i = 0; i < elements; ++i) {  // some in a row, most apart
        if (random() % 5 != 0) continue;
        positions.push_back(i);
        for (unsigned b = 0; b < width; ++b) {
          values.push_back(uint8_t(random()));
          tensor[i * width + b] = values.back();
        }
      }
      Sums sums;
      sums.add(before, 0);
      replace_elements(width, before, positions, values, elements % 2 != 0 ? &pool : nullptr,
                       &sums);
      EXPECT_EQ(finished(sums, tensor.size()), digest(tensor)) << width << " " << elements;
    }
  }
}

TEST(Sum128, DetectsEveryChangeOfOneBit) {
  for (const size_t width : {1, 2, 4}) {
    std::vector<uint8_t> tensor = random_bytes(1030, uint32_t(width));
    const Digest before = digest(tensor);
    for (size_t at = 0; at + width <= tensor.size(); at += width) {
      for (size_t bit = 0; bit < 8 * width; ++bit) {
        tensor[at + bit / 8] ^= uint8_t(1U << bit % 8);
        ASSERT_NE(digest(tensor), before) << at << " " << bit;
        tensor[at + bit / 8] ^= uint8_t(1U << bit % 8);
      }
    }
  }
}

// Typical mistakes (shifts, swaps, rotations): no two give the same digest or half of a digest.
TEST(Sum128, StructuredChangesDoNotCollide) {
  constexpr size_t kRows = 48, kColumns = 40;  // bf16; rows are no multiples of segments
  for (const bool constant : {false, true}) {
    std::vector<uint16_t> tensor(kRows * kColumns, 0x3f80);
    std::mt19937 random(9);
    if (!constant) {
      for (uint16_t& element : tensor) element = uint16_t(0x3c00 + random() % 0x300);
    }
    std::set<std::string> seen, low, high;
    size_t tried = 0;
    const auto look = [&](const std::vector<uint16_t>& changed, bool is_new = true) {
      const std::string hex =
          digest({reinterpret_cast<const uint8_t*>(changed.data()), changed.size() * 2}).hex();
      tried += is_new;
      seen.insert(hex);
      low.insert(hex.substr(0, 16));
      high.insert(hex.substr(16));
    };
    look(tensor);
    for (size_t i = 0; i < tensor.size(); ++i) {  // sign flips, of one and of all up to it
      auto changed = tensor;
      changed[i] ^= 0x8000;
      look(changed);
      if (i == 0) continue;
      changed = tensor;
      for (size_t j = 0; j <= i; ++j) changed[j] ^= 0x8000;
      look(changed);
    }
    for (const int step : {1, -1, 2, -2}) {  // everywhere
      auto changed = tensor;
      for (uint16_t& element : changed) element = uint16_t(element + step);
      look(changed);
    }
    for (size_t i = 0; i + 1 < tensor.size(); ++i) {  // one up, the next one down
      auto changed = tensor;
      ++changed[i];
      --changed[i + 1];
      look(changed);
    }
    if (!constant) {
      for (size_t a = 0; a < kRows; ++a) {  // rows that change places; so do columns
        for (size_t b = a + 1; b < kRows; ++b) {
          auto changed = tensor;
          std::swap_ranges(changed.begin() + long(a * kColumns),
                           changed.begin() + long((a + 1) * kColumns),
                           changed.begin() + long(b * kColumns));
          look(changed);
        }
      }
      for (size_t a = 0; a < kColumns; ++a) {
        for (size_t b = a + 1; b < kColumns; ++b) {
          auto changed = tensor;
          for (size_t row = 0; row < kRows; ++row) {
            std::swap(changed[row * kColumns + a], changed[row * kColumns + b]);
          }
          look(changed);
        }
      }
      for (size_t shift = 1; shift < tensor.size(); ++shift) {  // everything moves along
        auto changed = tensor;
        std::rotate(changed.begin(), changed.begin() + long(shift), changed.end());
        look(changed);
      }
    }
    EXPECT_EQ(seen.size(), tried);
    EXPECT_EQ(low.size(), tried);
    EXPECT_EQ(high.size(), tried);
  }
}

TEST(Sum128, DependsOnTheSize) {
  std::set<std::string> seen;
  const std::vector<uint8_t> zeros(1000);
  for (size_t size = 0; size <= zeros.size(); ++size)
    seen.insert(digest(Bytes(zeros).first(size)).hex());
  EXPECT_EQ(seen.size(), zeros.size() + 1);
}

}  // namespace
}  // namespace deltawire::testing
