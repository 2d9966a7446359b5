// `tight` for matrices on a GPU, in tiles: the CPU's bytes out, the same weights in.
#include <chrono>
#include <cstdlib>

#include "codec/cuda/workspace.h"
#include "codec/tight_payload.h"
#include "cuda/device_arrays.h"
#include "deltawire/digest.h"
#include "kernels/cuda/tight.h"

namespace deltawire::cuda {
namespace {

struct Matrices {
  size_t count;
  uint32_t rows, columns;
  size_t size() const { return count * rows * columns; }
};
// Columns that divide evenly into slices, tiles cut by the right edge, the bottom edge, or both; a
// last panel of one row, rows that are no multiple of a word, tiles as wide as their matrix.
constexpr Matrices kMatrices[] = {{1, 512, 512},  {3, 300, 1344}, {2, 1025, 512}, {1, 513, 4096},
                                  {1, 2100, 130}, {3, 2101, 131}, {1, 20, 20000}, {2, 600, 513}};

// Repeats a smaller array, which is faster to make.
HostPair make_matrices(uint64_t seed, unsigned width, const Matrices& shape, double density) {
  const HostPair some =
      make_trained_pair(seed, width, std::min<size_t>(shape.size(), 1'000'003), density);
  HostPair pair{width, {}, {}, shape.rows, shape.columns};
  const auto repeat = [&](const std::vector<uint8_t>& from, std::vector<uint8_t>* to) {
    to->reserve(shape.size() * width);
    while (to->size() < shape.size() * width) {
      const size_t left = shape.size() * width - to->size();
      to->insert(to->end(), from.begin(), from.begin() + ptrdiff_t(std::min(left, from.size())));
    }
  };
  repeat(some.old_bytes, &pair.old_bytes);
  repeat(some.new_bytes, &pair.new_bytes);
  return pair;
}

std::string described(const HostPair& pair) {
  return std::to_string(pair.old_bytes.size() / pair.width) + " elements of width " +
         std::to_string(pair.width) + " in matrices of " + std::to_string(pair.rows) + " x " +
         std::to_string(pair.columns);
}

std::vector<DevicePatch> tight_patches(const DeviceBatch& batch,
                                       const std::vector<DeviceEncoded>& encoded) {
  std::vector<DevicePatch> patches;
  for (size_t i = 0; i < batch.pairs.size(); ++i) {
    patches.push_back({batch.pairs[i].layout, batch.old_arrays[i].data(),
                       batch.pairs[i].num_elements, CodecId::kTight, encoded[i].payload});
  }
  return patches;
}

// Encodes with digests, and compares with the CPU.
std::vector<DeviceEncoded> encode_as_cpu(const DeviceBatch& batch, DeviceOptions options) {
  options.new_digests = true;
  std::vector<DeviceEncoded> encoded = good(encode(CodecId::kTight, batch.pairs, options, nullptr));
  EXPECT_EQ(encoded.size(), batch.pairs.size());
  for (size_t i = 0; i < encoded.size(); ++i) {
    const HostPair& host = batch.host[i];
    const Encoded expected = encode_on_cpu(CodecId::kTight, host);
    EXPECT_EQ(encoded[i].num_changed, expected.num_changed) << described(host);
    EXPECT_TRUE(encoded[i].payload == expected.payload) << described(host);
    EXPECT_EQ(encoded[i].new_digest, digest_of(DigestKind::kSum128, host.new_bytes))
        << described(host);
    encoded[i].payload = expected.payload;
  }
  return encoded;
}

void expect_new_arrays(const DeviceBatch& batch) {
  for (size_t i = 0; i < batch.pairs.size(); ++i) {
    EXPECT_TRUE(batch.old_arrays[i].fetch() == batch.host[i].new_bytes) << described(batch.host[i]);
  }
}

// Known where every block has changes and no row ends inside a word.
void expect_known_digests(const DeviceBatch& batch, const std::vector<DevicePatch>& patches,
                          const std::vector<std::optional<Digest>>& digests) {
  for (size_t i = 0; i < patches.size(); ++i) {
    const HostPair& host = batch.host[i];
    bool known = !patches[i].payload.empty();
    if (known) {
      const auto split = good(
          tight::split_payload(patches[i].layout, patches[i].payload, patches[i].num_elements));
      known = !split.model.tiles.tiled() || host.columns * host.width % 8 == 0;
      for (const Bytes block : split.blocks) known = known && !block.empty();
    }
    ASSERT_EQ(digests[i].has_value(), known) << described(host);
    if (known) {
      EXPECT_EQ(digests[i], digest_of(DigestKind::kSum128, host.new_bytes)) << described(host);
    }
  }
}

// Applies the payloads in every possible way, each to the old arrays.
void apply_every_way(DeviceBatch* batch, const std::vector<DeviceEncoded>& encoded,
                     const DeviceOptions& given) {
  ASSERT_EQ(encoded.size(), batch->pairs.size());
  const std::vector<DevicePatch> patches = tight_patches(*batch, encoded);
  const auto restore = [&] {
    for (size_t i = 0; i < patches.size(); ++i) {
      const std::vector<uint8_t>& old_bytes = batch->host[i].old_bytes;
      ASSERT_GOOD(copy(patches[i].data, old_bytes.data(), old_bytes.size(), nullptr));
    }
    ASSERT_GOOD(wait(nullptr));
  };
  const auto apply_summed = [&](DeviceOptions options) {
    std::vector<std::optional<Digest>> digests(patches.size());
    options.patched_digests = &digests;
    ASSERT_GOOD(apply(patches, options, nullptr));
    expect_new_arrays(*batch);
    expect_known_digests(*batch, patches, digests);
    restore();
  };
  for (const bool all_or_nothing : {true, false}) {
    DeviceOptions options = given;
    options.all_or_nothing = all_or_nothing;
    ASSERT_GOOD(apply(patches, options, nullptr));
    expect_new_arrays(*batch);
    restore();
    apply_summed(options);
  }
  for (const std::optional<uint64_t> kept :
       {std::optional<uint64_t>(0), std::optional<uint64_t>()}) {
    Workspace workspace;
    DeviceOptions options = given;
    options.workspace = &workspace;
    options.keep_bytes = kept;
    options.apply_follows = true;
    ASSERT_GOOD(check(patches, options, nullptr));
    options.apply_follows = false;
    options.as_checked = true;
    options.all_or_nothing = false;
    apply_summed(options);
  }
}

class TightTiles : public ::testing::TestWithParam<unsigned> {
 protected:
  void SetUp() override { SKIP_WITHOUT_GPU(); }
};

TEST_P(TightTiles, EveryShapeAndDensity) {
  for (const double density : {0.0, 0.0001, 0.02}) {
    DeviceBatch batch;
    for (const Matrices& shape : kMatrices) {
      batch.add(make_matrices(shape.rows, GetParam(), shape, density));
    }
    batch.add(make_trained_pair(1, GetParam(), 600'001, density));  // not a matrix, beside them
    apply_every_way(&batch, encode_as_cpu(batch, {}), {});
  }
}

TEST_P(TightTiles, WorksWithLittleScratch) {
  DeviceOptions options;
  options.scratch_bytes = size_t{4} << 20;
  DeviceBatch batch;
  for (const Matrices& shape : kMatrices) batch.add(make_matrices(7, GetParam(), shape, 0.03));
  apply_every_way(&batch, encode_as_cpu(batch, options), options);
}

TEST_P(TightTiles, LargeMatrix) {
  for (const double density : {0.0001, 0.02}) {
    DeviceBatch batch;
    batch.add(make_matrices(1, GetParam(), {1, 8192, 4096}, density));
    apply_every_way(&batch, encode_as_cpu(batch, {}), {});
  }
}

TEST_P(TightTiles, DenseChangesAndArbitraryBits) {
  DeviceBatch batch;
  for (const Matrices& shape : {kMatrices[0], kMatrices[1], kMatrices[5]}) {
    for (const double density : {0.4, 1.0}) {
      HostPair pair = make_pair(3, GetParam(), shape.size(), density, Content::kNoise);
      pair.rows = shape.rows;
      pair.columns = shape.columns;
      batch.add(std::move(pair));
    }
  }
  apply_every_way(&batch, encode_as_cpu(batch, {}), {});
}

TEST_P(TightTiles, AnyAlignment) {
  DeviceBatch batch;
  for (const size_t skew : {1, 2, 4, 8}) {
    for (const Matrices& shape : {kMatrices[1], kMatrices[2], kMatrices[4]}) {
      batch.add(make_matrices(skew, GetParam(), shape, 0.02), skew);
    }
  }
  apply_every_way(&batch, encode_as_cpu(batch, {}), {});
}

TEST_P(TightTiles, OneChangeInEachCorner) {
  const unsigned width = GetParam();
  for (const Matrices& shape : kMatrices) {
    const size_t matrix = size_t{shape.rows} * shape.columns;
    DeviceBatch batch;
    for (const size_t at : {size_t{0}, size_t{shape.columns} - 1, matrix - shape.columns,
                            matrix - 1, shape.size() - 1}) {
      HostPair pair = make_matrices(at, width, shape, 0);
      pair.new_bytes[at * width] ^= 1;
      batch.add(std::move(pair));
    }
    apply_every_way(&batch, encode_as_cpu(batch, {}), {});
  }
}

// A part of an array in its own buffer, between elements that must not change.
struct Part {
  DeviceRegion region;
  size_t width, full_columns, pad;
  OnDevice buffer;

  Part(const HostPair& pair, const DeviceRegion& wanted, size_t padding)
      : region(wanted), width(pair.width), full_columns(pair.columns), pad(padding) {
    region.row_stride = region.columns + 2 * pad;
    buffer = OnDevice(bytes_of(pair.old_bytes));
    region.data = buffer.data() + pad * width;
  }
  std::vector<uint8_t> bytes_of(const std::vector<uint8_t>& array) const {
    std::vector<uint8_t> bytes(region.rows * region.row_stride * width, 0xa5);
    for (size_t row = 0; row < region.rows; ++row) {
      const size_t from = (region.first_row + row) * full_columns + region.first_column;
      std::memcpy(&bytes[(row * region.row_stride + pad) * width], &array[from * width],
                  region.columns * width);
    }
    return bytes;
  }
};

// Patches some parts of an array; the payload of all other parts is damaged.
void expect_parts_patched(const HostPair& pair, std::vector<uint8_t> payload,
                          const std::vector<DeviceRegion>& regions, size_t pad, bool checked) {
  std::vector<Part> parts;
  DevicePatch patch{
      pair.layout(), nullptr, pair.old_bytes.size() / pair.width, CodecId::kTight, {}};
  for (const DeviceRegion& region : regions) {
    parts.emplace_back(pair, region, pad);
    patch.regions.push_back(parts.back().region);
  }
  const auto split = good(tight::split_payload(patch.layout, payload, patch.num_elements));
  const Tiling tiling(split.model.tiles, patch.layout, patch.num_elements);
  ASSERT_TRUE(tiling.tiled());
  for (size_t b = 0; b < tiling.size(); ++b) {
    const size_t row = tiling[b].begin / pair.columns, column = tiling[b].begin % pair.columns;
    const bool there = std::any_of(regions.begin(), regions.end(), [&](const DeviceRegion& region) {
      return row >= region.first_row && row < region.first_row + region.rows &&
             column >= region.first_column && column < region.first_column + region.columns;
    });
    const size_t at = size_t(split.blocks[b].data() - payload.data());
    if (!there) std::fill_n(payload.begin() + ptrdiff_t(at), split.blocks[b].size(), 0xff);
  }
  patch.payload = payload;
  Workspace workspace;
  DeviceOptions options;
  options.workspace = &workspace;
  std::vector<std::optional<Digest>> digests(1);
  if (checked) {
    options.apply_follows = true;
    ASSERT_GOOD(check({&patch, 1}, options, nullptr));
    options.apply_follows = false;
    options.as_checked = true;
    options.all_or_nothing = false;
    options.patched_digests = &digests;
  }
  ASSERT_GOOD(apply({&patch, 1}, options, nullptr));
  EXPECT_FALSE(digests[0].has_value());
  for (const Part& part : parts) {
    EXPECT_TRUE(part.buffer.fetch() == part.bytes_of(pair.new_bytes)) << described(pair);
  }
}

TEST_P(TightTiles, PatchesPartsOfAnArray) {
  const HostPair square = make_matrices(1, GetParam(), {1, 4096, 4096}, 0.01);
  const HostPair stack = make_matrices(2, GetParam(), {8, 300, 1344}, 0.01);
  const std::vector<uint8_t> of_square = encode_on_cpu(CodecId::kTight, square).payload,
                             of_stack = encode_on_cpu(CodecId::kTight, stack).payload;
  for (const size_t ranks : {2, 4, 8}) {
    for (const size_t rank : {size_t{0}, ranks - 1}) {
      for (const size_t pad : {0, 3, 64}) {
        const size_t side = 4096 / ranks, matrices = 8 / ranks;
        expect_parts_patched(square, of_square, {{0, rank * side, 4096, side}}, pad, pad == 3);
        expect_parts_patched(square, of_square, {{rank * side, 0, side, 4096}}, pad, pad != 3);
        expect_parts_patched(stack, of_stack, {{rank * matrices * 300, 0, matrices * 300, 1344}},
                             pad, true);
      }
    }
    const size_t side = 4096 / ranks;  // two parts at once
    expect_parts_patched(square, of_square, {{0, 0, 4096, side}, {0, 4096 - side, 4096, side}}, 8,
                         true);
  }
}

// The CPU decides which damage is detectable, and what is written if it is not.
TEST_P(TightTiles, DetectsDamageLikeTheCpu) {
  DeviceBatch batch;
  for (const Matrices& shape : {kMatrices[1], kMatrices[5]}) {
    batch.add(make_matrices(5, GetParam(), shape, 0.003));
  }
  const std::vector<DeviceEncoded> encoded = encode_as_cpu(batch, {});
  Random random(GetParam());
  size_t refused = 0;
  for (size_t round = 0; round < 200; ++round) {
    const size_t bad = round % 2;
    std::vector<DevicePatch> patches = tight_patches(batch, encoded);
    std::vector<uint8_t> damaged = encoded[bad].payload;
    if (round % 10 < 2) {
      damaged.resize(random() % damaged.size());
    } else {
      // The model, which describes the tiles, is at the start.
      const size_t reach = round % 3 == 0 ? std::min<size_t>(40, damaged.size()) : damaged.size();
      damaged[random() % reach] ^= uint8_t(1 << random() % 8);
    }
    patches[bad].payload = damaged;
    std::vector<uint8_t> expected = batch.host[bad].old_bytes;
    const Status judged = tight_codec().apply(patches[bad].layout, damaged, expected, nullptr);
    const Status status = apply(patches, {}, nullptr);
    ASSERT_EQ(status.ok(), judged.ok()) << status.to_string() << " / " << judged.to_string();
    if (!status.ok()) {
      ++refused;
      EXPECT_EQ(status.code(), judged.code()) << status.to_string();
    }
    for (size_t i = 0; i < patches.size(); ++i) {
      const std::vector<uint8_t>& then = !status.ok() ? batch.host[i].old_bytes
                                         : i == bad   ? expected
                                                      : batch.host[i].new_bytes;
      ASSERT_TRUE(batch.old_arrays[i].fetch() == then) << round << ", array " << i;
      if (status.ok()) batch.old_arrays[i] = OnDevice(batch.host[i].old_bytes);
    }
  }
  EXPECT_GT(refused, 10);
}

INSTANTIATE_TEST_SUITE_P(Widths, TightTiles, ::testing::Values(1U, 2U, 4U, 8U));

TEST(TightTilesTest, ComparesWiderFloatsAsBf16) {
  SKIP_WITHOUT_GPU();
  for (const NewKind kind : {NewKind::kF32AsBf16, NewKind::kF16AsBf16}) {
    for (const Matrices& shape : kMatrices) {
      HostPair pair = make_matrices(2, 2, shape, 0.02);
      const size_t n = shape.size(), bytes = kind == NewKind::kF32AsBf16 ? 4 : 2;
      std::vector<uint8_t> wide(n * bytes);
      for (size_t i = 0; i < n; ++i) {
        uint16_t bf16 = 0;
        std::memcpy(&bf16, pair.new_bytes.data() + 2 * i, 2);
        // Arbitrary halves; of floats, those that round to the new array.
        const uint32_t value = bytes == 4 ? uint32_t{bf16} << 16 : bf16 & 0xbfffU;
        const uint16_t rounded = uint16_t(bf16_of_f32(bytes == 4 ? value : f32_of_f16(value)));
        std::memcpy(wide.data() + i * bytes, &value, bytes);
        std::memcpy(pair.new_bytes.data() + 2 * i, &rounded, 2);
        if (bytes == 2 && i % 50 != 0) std::memcpy(pair.old_bytes.data() + 2 * i, &rounded, 2);
      }
      const OnDevice old_array(pair.old_bytes), new_array(wide);
      const DevicePair on_device{pair.layout(), old_array.data(), new_array.data(), n, kind};
      DeviceOptions options;
      options.new_digests = true;
      const auto encoded = good(encode(CodecId::kTight, {&on_device, 1}, options, nullptr));
      ASSERT_EQ(encoded.size(), 1);
      EXPECT_TRUE(encoded[0].payload == encode_on_cpu(CodecId::kTight, pair).payload)
          << described(pair);
      EXPECT_EQ(encoded[0].new_digest, digest_of(DigestKind::kSum128, pair.new_bytes))
          << described(pair);
    }
  }
}

// Enough to encode a block in which every element changed, in each slot: room for all of them in
// every class, for the most bytes that they can become, and for tables.
size_t scratch_for_any_block(unsigned width) {
  constexpr size_t kBlock = size_t{1} << tight::kBlockLog2;
  const size_t lists = kMaxClasses * kBlock * (4 + 2 * width), bytes = kBlock * (10 + width);
  return Workspace::kCodecStreams * (lists + bytes) + (size_t{32} << 20);
}

// Like DeviceFuzz, which has no matrices: DELTAWIRE_FUZZ_SECONDS and DELTAWIRE_FUZZ_SEED.
TEST(TightTilesTest, FuzzedShapes) {
  SKIP_WITHOUT_GPU();
  const auto number = [](const char* name, uint64_t otherwise) {
    const char* const text = std::getenv(name);
    return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
  };
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::seconds(number("DELTAWIRE_FUZZ_SECONDS", 2));
  for (uint64_t seed = number("DELTAWIRE_FUZZ_SEED", 1); Clock::now() < end; ++seed) {
    SCOPED_TRACE("DELTAWIRE_FUZZ_SEED=" + std::to_string(seed));
    Random random(seed);
    const unsigned width = 1U << random() % 4;
    DeviceOptions options;
    const bool little_scratch = random() % 2 == 0;
    double densest = 0;
    DeviceBatch batch;
    for (uint64_t left = 1 + random() % 3; left > 0; --left) {
      constexpr uint32_t kSteps[] = {1, 2, 4, 8, 16, 32, 64, 128};
      const uint32_t step = kSteps[random() % std::size(kSteps)];
      const uint32_t columns = (128 + uint32_t(random() % 3000)) / step * step;
      const uint32_t rows = (1U << tight::kBlockLog2) / columns + 1 + uint32_t(random() % 300);
      const Matrices shape{1 + random() % 3, rows, columns};
      constexpr double kDensities[] = {0, 0.00002, 0.001, 0.012, 0.05, 0.4, 1};
      const double density = kDensities[random() % std::size(kDensities)];
      densest = std::max(densest, density);
      batch.add(make_matrices(random(), width, shape, density),
                random() % 3 == 0 ? random() % 17 : 0);
    }
    if (little_scratch) {
      options.scratch_bytes = densest <= 0.001 ? size_t{4} << 20 : scratch_for_any_block(width);
    }
    apply_every_way(&batch, encode_as_cpu(batch, options), options);
    ASSERT_FALSE(::testing::Test::HasFailure());
  }
}

// Needs no GPU: the host rejects them before it allocates memory.
TEST(TightTilesTest, RejectsPartsThatCutTiles) {
  const HostPair pair = make_matrices(1, 2, {1, 1024, 4096}, 0.01);
  const std::vector<uint8_t> payload = encode_on_cpu(CodecId::kTight, pair).payload;
  std::vector<uint8_t> memory = pair.old_bytes;
  const auto code_of = [&](std::vector<DeviceRegion> regions, const char* words) {
    for (DeviceRegion& region : regions) region.data = memory.data();
    const DevicePatch patch{pair.layout(),   nullptr, size_t{1024} * 4096,
                            CodecId::kTight, payload, std::move(regions)};
    const Status status = apply({&patch, 1}, {}, nullptr);
    EXPECT_NE(status.message().find(words), std::string::npos) << status.to_string();
    return status.code();
  };
  const Code refused = Code::kInvalidArgument;
  EXPECT_EQ(code_of({{0, 0, 1024, 700, nullptr, 700}}, "tile 1"), refused);
  EXPECT_EQ(code_of({{100, 0, 924, 4096, nullptr, 4096}}, "tile 0"), refused);
  EXPECT_EQ(code_of({{0, 0, 512, 512, nullptr, 512}, {0, 0, 512, 512, nullptr, 512}}, "tile 0"),
            refused);
  EXPECT_EQ(code_of({{0, 3584, 1024, 513, nullptr, 513}}, "not in its array"), refused);
  EXPECT_EQ(code_of({{0, 0, 1024, 512, nullptr, 511}}, "row stride"), refused);
}

// Needs no GPU.
TEST(BlockPlaceTest, FindsTheRowOfEveryElement) {
  constexpr uint32_t kEnd = 1U << tight::kMaxBlockLog2;
  for (uint32_t columns = 1; columns <= 1U << BlockPlace::kMaxColumnsLog2; ++columns) {
    const BlockPlace place = BlockPlace::of_rows(1000, columns, 77);
    for (uint32_t row = 0; row * columns < kEnd; ++row) {
      const uint32_t first = row * columns, last = std::min(first + columns, kEnd) - 1;
      ASSERT_EQ(place.row(first), row) << columns;
      ASSERT_EQ(place.row(last), row) << columns;
      ASSERT_EQ(place(last), 1000 + uint64_t{row} * (columns + 77) + last - first) << columns;
    }
  }
}

TEST(BlockPlaceTest, HopIsTheSameFromEveryElement) {
  EXPECT_EQ(BlockPlace{7}.hop(4096), 4096);
  for (uint32_t columns = 1; columns <= 1U << BlockPlace::kMaxColumnsLog2; ++columns) {
    const BlockPlace place = BlockPlace::of_rows(1000, columns, 77);
    for (uint32_t count = 512; count <= 4096; count *= 2) {
      ASSERT_EQ(place.hop(count) != 0, count % columns == 0) << columns;
      if (place.hop(count) == 0) continue;
      for (uint32_t i = 0; i < 3 * count; ++i) {
        ASSERT_EQ(place(i + count) - place(i), place.hop(count)) << columns << ", " << i;
      }
    }
  }
}

TEST(BlockPlaceTest, PiecesDivideRowsAndGaps) {
  EXPECT_EQ(BlockPlace{4096}.piece_bytes<uint8_t>(), 512);
  EXPECT_EQ(BlockPlace{}.piece_bytes<uint64_t>(), 512);
  EXPECT_EQ(BlockPlace{64}.piece_bytes<uint16_t>(), 128);
  EXPECT_EQ(BlockPlace::of_rows(1024, 320, 1024).piece_bytes<uint16_t>(), 128);
  EXPECT_EQ(BlockPlace::of_rows(512, 512, 3584).piece_bytes<uint16_t>(), 512);
  EXPECT_EQ(BlockPlace::of_rows(0, 512, 1).piece_bytes<uint16_t>(), 2);
  EXPECT_EQ(BlockPlace::of_rows(3, 64, 64).piece_bytes<uint32_t>(), 4);
}

}  // namespace
}  // namespace deltawire::cuda
