// Patches through a map: fused, sharded and transposed tensors of an engine.
#include "cuda/contexts.h"
#include "device/tensor_map.h"

namespace deltawire::cuda {
namespace {

// A box of a tensor and where in the engine's memory it goes.
struct Placed {
  Box box;
  uint64_t at = 0;  // element
  std::vector<int64_t> strides;
};

// Calls body(element of the tensor, element of the memory) for all of a box.
template <class Body>
void for_each_element(const Shape& shape, const Placed& placed, const Body& body) {
  const bool whole = placed.box.whole();
  const Shape offset = whole ? Shape(shape.size(), 0) : placed.box.offset;
  const Shape extent = whole ? shape : placed.box.extent;
  uint64_t count = 1;
  for (const uint64_t e : extent) count *= e;
  for (uint64_t i = 0; i < count; ++i) {
    uint64_t left = i, element = 0, scale = 1;
    int64_t to = int64_t(placed.at);
    for (size_t d = shape.size(); d-- > 0;) {
      const uint64_t own = left % extent[d];
      left /= extent[d];
      element += (offset[d] + own) * scale;
      scale *= shape[d];
      to += int64_t(own) * placed.strides[d];
    }
    body(element, uint64_t(to));
  }
}

// One tensor of a checkpoint, and the memory that holds its boxes between things that are not ours.
struct Engine {
  HostPair tensor;
  Shape shape;
  std::vector<Placed> boxes;
  std::vector<uint8_t> before, after;
  OnDevice memory;
  MappedTensor mapped;

  Engine(HostPair pair, Shape given_shape, std::vector<Placed> given, uint64_t memory_elements,
         size_t skew = 0)
      : tensor(std::move(pair)), shape(std::move(given_shape)), boxes(std::move(given)) {
    const unsigned width = tensor.width;
    before.assign(memory_elements * width, 0xa5);
    after = before;
    for (const Placed& placed : boxes) {
      for_each_element(shape, placed, [&](uint64_t from, uint64_t to) {
        std::memcpy(&before[to * width], &tensor.old_bytes[from * width], width);
        std::memcpy(&after[to * width], &tensor.new_bytes[from * width], width);
      });
    }
    memory = OnDevice(before, skew);
    mapped = {dtype_of(width), shape, {}};
    for (const Placed& placed : boxes) {
      mapped.boxes.push_back({placed.box, memory.data() + placed.at * width, placed.strides});
    }
  }
};

class MappedTest : public ::testing::Test {
 protected:
  void SetUp() override { SKIP_WITHOUT_GPU(); }
};

// Each tensor with one codec and then, from its old state, with the other.
void expect_mapped(Context& context, std::vector<Engine>& engines) {
  for (const char* codec : {"indices", "gaps"}) {
    std::vector<Encoded> encoded;
    std::vector<MappedPatch> patches;
    for (const Engine& engine : engines) {
      encoded.push_back(cpu_encode(codec, engine.mapped.dtype, engine.tensor));
    }
    for (size_t i = 0; i < engines.size(); ++i) {
      patches.push_back({&engines[i].mapped, codec, encoded[i].payload});
    }
    ASSERT_GOOD(context.apply_mapped(patches, nullptr));
    for (size_t i = 0; i < engines.size(); ++i) {
      ASSERT_TRUE(engines[i].memory.fetch() == engines[i].after) << codec << ", tensor " << i;
      ASSERT_GOOD(send(engines[i].before, engines[i].memory.data(), nullptr));
    }
  }
}

HostPair pair_for(uint64_t seed, unsigned width, const Shape& shape, double density = 0.05) {
  uint64_t n = 1;
  for (const uint64_t extent : shape) n *= extent;
  return make_pair(seed, width, n, density);
}

TEST_F(MappedTest, EnginesAsTheyAre) {
  Context context = make_context();
  for (const unsigned width : {1U, 2U, 4U, 8U}) {
    std::vector<Engine> engines;
    const auto add = [&](const Shape& shape, std::vector<Placed> boxes, uint64_t elements,
                         size_t skew = 0) {
      engines.emplace_back(pair_for(engines.size(), width, shape), shape, std::move(boxes),
                           elements, skew);
    };
    // q, k and v of one fused tensor of 512 + 128 + 128 rows, 256 columns.
    add({512, 256}, {{{}, 0, {256, 1}}}, 768 * 256);
    add({128, 256}, {{{}, 512 * 256, {256, 1}}}, 768 * 256);
    add({128, 256}, {{{}, 640 * 256, {256, 1}}}, 768 * 256);
    // gate and up of one tensor, rows in turn.
    add({300, 200}, {{{}, 0, {400, 1}}}, 600 * 200);
    add({300, 200}, {{{}, 200, {400, 1}}}, 600 * 200);
    // The rows, and the columns, of one rank of four.
    add({400, 120}, {{{{100, 0}, {100, 120}}, 0, {120, 1}}}, 100 * 120);
    add({400, 120}, {{{{0, 30}, {400, 30}}, 0, {30, 1}}}, 400 * 30);
    // Transposed, also a slice.
    add({130, 70}, {{{}, 0, {1, 130}}}, 130 * 70);
    add({130, 70}, {{{{10, 20}, {50, 33}}, 11, {1, 50}}}, 11 + 50 * 33);
    // Several boxes, holes between them, at no alignment; rows from the last to the first.
    add({90, 90},
        {{{{0, 0}, {10, 90}}, 5, {90, 1}},
         {{{40, 10}, {20, 30}}, 2000, {31, 1}},
         {{{80, 50}, {10, 40}}, 4000, {-40, 1}}},
        9000, 1);
    // Experts: three dimensions, one of them cut; five, none of which join.
    add({8, 60, 40}, {{{{2, 0, 0}, {3, 60, 40}}, 100, {2400, 1, 60}}}, 100 + 3 * 2400);
    add({5, 7, 6, 9, 4}, {{{{1, 2, 0, 3, 1}, {3, 4, 6, 5, 2}}, 9, {1, 3, 12, 72, 360}}}, 9 + 720);
    // One row, one element, nothing.
    add({1000}, {{{{300}, {1}}, 3, {1}}}, 10);
    add({1, 1000, 1}, {{{{0, 10, 0}, {1, 500, 1}}, 0, {7, 2, 9}}}, 1000);
    add({100, 100}, {}, 10);
    add({100, 100}, {{{{5, 5}, {0, 10}}, 0, {10, 1}}}, 10);
    expect_mapped(context, engines);
  }
}

TEST_F(MappedTest, LongListsAndManyTensorsInLittleScratch) {
  Context context = make_context(8 * kMiB);
  std::vector<Engine> engines;
  const Shape large = {3000, 2000};
  for (uint64_t i = 0; i < 3; ++i) {
    engines.emplace_back(pair_for(i, 2, large, 0.3), large,
                         std::vector<Placed>{{{{i * 1000, 0}, {1000, 2000}}, 0, {2000, 1}}},
                         1000 * 2000);
  }
  for (uint64_t i = 0; i < 2000; ++i) {
    const Shape shape = {1 + i % 13, 1 + i % 17};
    engines.emplace_back(pair_for(i, 2, shape, 0.2), shape,
                         std::vector<Placed>{{{}, 2, {int64_t(shape[1]) + 1, 1}}},
                         2 + shape[0] * (shape[1] + 1));
  }
  expect_mapped(context, engines);
}

TEST_F(MappedTest, HostilePayloadsWriteNothing) {
  Context context = make_context();
  std::vector<Engine> engines;
  const Shape shape = {500, 300};
  for (uint64_t i = 0; i < 3; ++i) {
    engines.emplace_back(pair_for(i, i == 1 ? 4 : 2, shape), shape,
                         std::vector<Placed>{{{{100, 0}, {200, 300}}, 0, {300, 1}}}, 200 * 300);
  }
  Random random(1);
  for (const char* codec : {"indices", "gaps"}) {
    std::vector<Encoded> encoded;
    for (const Engine& engine : engines) {
      encoded.push_back(cpu_encode(codec, engine.mapped.dtype, engine.tensor));
    }
    size_t refused = 0;
    for (size_t round = 0; round < 200; ++round) {
      std::vector<uint8_t> damaged = encoded[2].payload;
      if (round % 10 == 0) {
        damaged.resize(random() % damaged.size());
        if (damaged.empty()) continue;
      } else {
        damaged[random() % (damaged.size() / 2)] ^= uint8_t(1 << random() % 8);
      }
      const MappedPatch patches[] = {{&engines[0].mapped, codec, encoded[0].payload},
                                     {&engines[1].mapped, codec, encoded[1].payload},
                                     {&engines[2].mapped, codec, damaged}};
      std::vector<uint8_t> judge = engines[2].tensor.old_bytes;
      const Status judged =
          find_codec(codec)->apply(layout_of(DType::kBF16), damaged, judge, nullptr);
      const Status status = context.apply_mapped(patches, nullptr);
      ASSERT_EQ(status.ok(), judged.ok()) << status.to_string() << " / " << judged.to_string();
      if (!status.ok()) {
        ++refused;
        EXPECT_EQ(status.code(), Code::kCorruption) << status.to_string();
        EXPECT_TRUE(mentions(status, "patch 2")) << status.to_string();
        for (const Engine& engine : engines) ASSERT_TRUE(engine.memory.fetch() == engine.before);
      }
      for (const Engine& engine : engines) {
        ASSERT_GOOD(send(engine.before, engine.memory.data(), nullptr));
      }
    }
    EXPECT_GT(refused, 20);
  }
}

TEST_F(MappedTest, OtherCodecsAreRefused) {
  Context context = make_context();
  const MappedTensor tensor{DType::kBF16, {4}, {}};
  const MappedPatch patch{&tensor, "tight", {}};
  const Status status = context.apply_mapped({&patch, 1}, nullptr);
  EXPECT_EQ(status.code(), Code::kUnsupported);
  EXPECT_TRUE(mentions(status, "patch 0: codec tight")) << status.to_string();
}

// ---- the map itself; no GPU is asked

TEST(TensorMapTest, DimensionsThatRunOnAreOne) {
  uint8_t byte = 0;
  const auto dims = [&](const Shape& shape, const Box& box, std::vector<int64_t> strides,
                        DType dtype = DType::kBF16) {
    return good(map_tensor({dtype, shape, {{box, &byte, std::move(strides)}}})).num_dims;
  };
  EXPECT_EQ(dims({8, 6}, {}, {6, 1}), 1);                            // in a row
  EXPECT_EQ(dims({8, 6}, {{2, 0}, {4, 6}}, {6, 1}), 1);              // rows of a rank
  EXPECT_EQ(dims({8, 6}, {{0, 2}, {8, 2}}, {2, 1}), 2);              // columns of a rank
  EXPECT_EQ(dims({8, 6}, {}, {12, 1}), 2);                           // between others
  EXPECT_EQ(dims({8, 6}, {}, {1, 8}), 2);                            // transposed
  EXPECT_EQ(dims({8, 1, 6, 1}, {}, {6, 99, 1, 7}), 1);               // ones do not count
  EXPECT_EQ(dims({4, 8, 6}, {{1, 0, 0}, {1, 8, 6}}, {0, 6, 1}), 1);  // one expert
  EXPECT_EQ(dims({}, {}, {}), 1);
  EXPECT_EQ(dims({8, 6}, {}, {6, 1}, DType::kC64), 1);
  EXPECT_EQ(dims({2, 2, 2, 2, 2, 2, 2, 2}, {}, {1, 2, 4, 8, 16, 32, 64, 128}), 8);
}

TEST(TensorMapTest, BadBoxesAreNamed) {
  uint8_t byte = 0;
  const auto refuse = [&](const MappedBox& box, std::string_view words) {
    const MappedTensor tensor{DType::kBF16, {8, 6}, {{{}, &byte, {6, 1}}, box}};
    const Status status = map_tensor(tensor).status();
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << status.to_string();
    EXPECT_TRUE(mentions(status, "box 1: ") && mentions(status, words)) << status.to_string();
  };
  refuse({{{0, 0}, {9, 6}}, &byte, {6, 1}}, "leaves dimension 0");
  refuse({{{1, 6}, {1, 1}}, &byte, {6, 1}}, "leaves dimension 1");
  refuse({{{0, 0}, {~uint64_t{0}, 6}}, &byte, {6, 1}}, "leaves dimension 0");
  refuse({{{0}, {8}}, &byte, {6, 1}}, "2 dimensions");
  refuse({{}, &byte, {1}}, "1 strides");
  refuse({{}, nullptr, {6, 1}}, "null");
  EXPECT_EQ(map_tensor({DType::kF4, {8, 6}, {}}).status().code(), Code::kUnsupported);
  EXPECT_EQ(
      map_tensor({DType::kBF16, Shape(9, 2), {{{}, &byte, {1, 2, 4, 8, 16, 32, 64, 128, 256}}}})
          .status()
          .code(),
      Code::kUnsupported);
}

}  // namespace
}  // namespace deltawire::cuda
