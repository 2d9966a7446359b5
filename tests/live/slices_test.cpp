// The margins that a slice of a tensor needs to be decoded by itself.
#include "live/slices.h"

#include <gtest/gtest.h>

#include "support/stage_model.h"

namespace deltawire {
namespace {

struct MarginsCase {
  const char* what;
  DType dtype;
  Shape shape;
  const char* codec;
  size_t dimension;  // that receivers cut
  uint64_t parts;
  size_t publisher_dimension = 0;
  uint64_t publisher_parts = 1;
};

class MarginsTest : public ::testing::TestWithParam<MarginsCase> {};

// With the missing boxes every slice stages to what the next versions hold, twice in a row.
TEST_P(MarginsTest, MakeASliceDecodable) {
  const MarginsCase& param = GetParam();
  const VersionedTensor tensor = make_versions("w", param.dtype, param.shape, 2, 0.02, param.parts);
  MadeDeltas made(2);
  for (const Box& box : slices_of(param.shape, param.publisher_dimension, param.publisher_parts)) {
    made.add_all(tensor, param.codec, box);
  }
  uint64_t lacking = 0;
  for (const Box& slice : slices_of(param.shape, param.dimension, param.parts)) {
    std::vector<BoxMemory> places = {{slice}};
    std::vector<std::vector<uint8_t>> memory = {places[0].filled(tensor, 0)};
    HeldBoxes held{tensor, {places[0].at(tensor, memory[0].data())}};
    StagedDeltas alone = must(DeltaStager().stage(made.deltas(), {&held, 1}, {.threads = 2}));
    const std::vector<Box> missing = missing_boxes(made.deltas(), held);
    lacking += missing.size();
    EXPECT_EQ(alone.undecoded.empty(), missing.empty());
    for (const Box& box : missing) {
      places.push_back({box});
      memory.push_back(places.back().filled(tensor, 0));
      held.boxes.push_back(places.back().at(tensor, memory.back().data()));
    }
    StagedDeltas staged = must(DeltaStager().stage(made.deltas(), {&held, 1}, {.threads = 2}));
    EXPECT_TRUE(staged.undecoded.empty());
    ASSERT_TRUE(staged.exchange.swap().ok());
    for (size_t i = 0; i < places.size(); ++i) {
      EXPECT_EQ(memory[i], places[i].filled(tensor, 2)) << "box " << i;
    }
    EXPECT_TRUE(missing_boxes(made.deltas(), held).empty());
  }
  EXPECT_EQ(lacking != 0, param.what[0] != '=');
}

INSTANTIATE_TEST_SUITE_P(
    Forms, MarginsTest,
    ::testing::Values(
        MarginsCase{"=tiles", DType::kBF16, {2048, 4096}, "tight", 0, 4},
        MarginsCase{"=columns", DType::kBF16, {1024, 2048}, "tight", 1, 4},
        MarginsCase{"rows", DType::kBF16, {2200, 1024}, "tight", 0, 4},
        MarginsCase{"columns of 3", DType::kBF16, {1024, 1536}, "tight", 1, 5},
        MarginsCase{"experts", DType::kBF16, {3, 700, 1024}, "tight", 1, 3},
        MarginsCase{"shards of rows", DType::kBF16, {2200, 1024}, "tight", 0, 2, 0, 3},
        MarginsCase{"columns onto rows", DType::kBF16, {1100, 2048}, "tight", 0, 3, 1, 2},
        MarginsCase{"vector", DType::kBF16, {4096}, "tight", 0, 4},
        MarginsCase{"small", DType::kF32, {40, 30}, "tight", 1, 2},
        MarginsCase{"adaptive", DType::kU8, {512, 512}, "adaptive", 0, 2},
        MarginsCase{"=gaps", DType::kBF16, {512, 512}, "gaps", 0, 3}),
    [](const auto& info) { return "Form" + std::to_string(info.index); });

// Where slices of a tensor in GPU memory, which is not read, are decoded.
std::string place_of(MadeDeltas& made, const VersionedTensor& tensor, const BoxMemory& memory) {
  uint8_t live = 0;
  const HeldBoxes held{tensor, {memory.at(tensor, &live)}, Memory::kCuda};
  std::vector<StageStep> steps;
  for (size_t i = 0; i < made.deltas().size(); ++i) {
    for (const Delta::Entry& item : made.deltas()[i].entries) steps.push_back({i, &item});
  }
  SlicePlan plan;
  plan.add(held, steps, uint64_t{1} << 30);
  return !plan.listed.empty() ? "listed" : !plan.device.empty() ? "device" : "host";
}

TEST(SlicePlanTest, ListsTilesThatAreHeldOfASingleDelta) {
  const VersionedTensor tensor = make_versions("w", DType::kBF16, {1024, 2048}, 2, 0.02, 1);
  MadeDeltas one(1), ranks(1), two(2), gaps(1);
  one.add_all(tensor, "tight");
  for (const Box& rows : slices_of(tensor.shape, 0, 2)) ranks.add_all(tensor, "tight", rows);
  two.add_all(tensor, "tight");
  gaps.add_all(tensor, "gaps");
  for (const BoxMemory& memory :
       {BoxMemory{}, BoxMemory{{}, 64}, BoxMemory{{{0, 512}, {1024, 1024}}}}) {
    EXPECT_EQ(place_of(one, tensor, memory), "listed");
    EXPECT_EQ(place_of(ranks, tensor, memory), "listed");
  }
  EXPECT_EQ(place_of(one, tensor, {{{0, 0}, {700, 2048}}}), "host");  // cuts tiles
  EXPECT_EQ(place_of(two, tensor, {}), "device");
  EXPECT_EQ(place_of(gaps, tensor, {}), "device");
}

}  // namespace
}  // namespace deltawire
