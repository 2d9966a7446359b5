// Deltas staged over weights in host memory, compared with whole versions. tests/cuda does the same
// on a GPU.
#include "live/stage.h"

#include <sys/mman.h>

#include "support/stage_model.h"

namespace deltawire::testing {
namespace {

// A worker's memory: boxes of tensors at their first version.
struct Worker {
  struct Part {
    const VersionedTensor* tensor;
    BoxMemory memory;
    std::vector<uint8_t> bytes;
  };
  std::deque<Part> parts;
  std::vector<HeldBoxes> held;

  void hold(const VersionedTensor& tensor, const std::vector<BoxMemory>& boxes) {
    HeldBoxes own{{tensor.name, tensor.dtype, tensor.shape}, {}};
    for (const BoxMemory& memory : boxes) {
      parts.push_back({&tensor, memory, memory.filled(tensor, 0)});
      own.boxes.push_back(memory.at(tensor, parts.back().bytes.data()));
    }
    held.push_back(std::move(own));
  }

  // Swaps forward: the memory has the last version of all decoded tensors; then back to the first.
  void expect_swaps(StagedDeltas* staged) {
    uint64_t changed = 0;
    for (const Part& part : parts) {
      const auto before = part.memory.filled(*part.tensor, 0);
      ASSERT_EQ(first_difference(before, part.bytes), "") << part.tensor->name << ", staged";
      if (decoded(part, *staged)) {
        changed += count_changed(*part.tensor, part.memory, before,
                                 part.memory.filled(*part.tensor, last(part)));
      }
    }
    EXPECT_EQ(staged->exchange.num_changed(), changed);
    for (const bool forward : {true, false, true, false}) {
      ASSERT_TRUE(staged->exchange.swap().ok());
      for (const Part& part : parts) {
        const size_t version = forward && decoded(part, *staged) ? last(part) : 0;
        ASSERT_EQ(first_difference(part.memory.filled(*part.tensor, version), part.bytes), "")
            << part.tensor->name << ", box " << box_to_string(part.memory.box)
            << (forward ? ", swapped" : ", swapped back");
      }
    }
  }

 private:
  static size_t last(const Part& part) { return part.tensor->versions.size() - 1; }
  static bool decoded(const Part& part, const StagedDeltas& staged) {
    return std::ranges::count(staged.undecoded, part.tensor->name) == 0;
  }
};

using Names = std::vector<std::string>;

Status failure(const std::vector<Delta>& deltas, const std::vector<HeldBoxes>& held) {
  return DeltaStager().stage(deltas, held).status();
}

TEST(StageTest, StagesEveryCodecOntoWholeTensors) {
  for (const unsigned threads : {1U, 3U}) {
    MadeDeltas made(2);
    std::deque<VersionedTensor> tensors;
    Worker worker;
    for (const Codec* codec : all_codecs()) {
      size_t number = 0;
      for (const auto& [dtype, shape] :
           std::vector<std::pair<DType, Shape>>{{DType::kBF16, {700, 1024}},
                                                {DType::kBF16, {3, 40, 48}},
                                                {DType::kF32, {5000}},
                                                {DType::kF64, {}},
                                                {DType::kF8_E4M3, {130, 131}},
                                                {DType::kF4, {7, 5, 6}},
                                                {DType::kC64, {40, 24}},
                                                {DType::kU8, {0, 4}}}) {
        const std::string name = std::string(codec->name()) + std::to_string(number++);
        tensors.push_back(make_versions(name, dtype, shape, 2, 0.05, number));
        made.add_all(tensors.back(), codec->name().data());
        worker.hold(tensors.back(), {{{}, 0, number % 4}});
      }
    }
    StagedDeltas staged =
        must(DeltaStager().stage(made.deltas(), worker.held, {.threads = threads}));
    EXPECT_EQ(staged.undecoded, Names());
    EXPECT_EQ(staged.changed.size(), tensors.size());
    worker.expect_swaps(&staged);
  }
}

// Slices of 4 MiB are decoded independently: boxes of a publisher, and tiles, have other borders.
TEST(StageTest, StagesTilesOfLargeMatrices) {
  const VersionedTensor tensor = make_versions("w", DType::kBF16, {5000, 1024}, 3, 0.01, 1);
  MadeDeltas made(3);
  made.add(0, tensor, {}, "tight");
  for (const Box& box : slices_of(tensor.shape, 0, 3)) made.add(1, tensor, box, "tight");
  for (const Box& box : slices_of(tensor.shape, 1, 2)) made.add(2, tensor, box, "tight");
  for (const size_t gap : {size_t{0}, size_t{34}}) {
    Worker all;
    all.hold(tensor, {{{}, gap, 3}});
    StagedDeltas staged =
        must(DeltaStager().stage(made.deltas(), all.held, {.scratch_bytes = 5 << 20}));
    EXPECT_EQ(staged.undecoded, Names());
    all.expect_swaps(&staged);
  }
  // Columns of one tile and more.
  Worker columns;
  columns.hold(tensor, {{{{0, 512}, {5000, 256}}, 6, 1}, {{{0, 0}, {5000, 128}}, 0, 0}});
  StagedDeltas staged = must(DeltaStager().stage(made.deltas(), columns.held));
  EXPECT_EQ(staged.undecoded, Names());
  columns.expect_swaps(&staged);
}

TEST(StageTest, StagesSomeExpertsOfATensor) {
  const VersionedTensor tensor = make_versions("experts", DType::kBF16, {9, 520, 640}, 2, 0.01, 2);
  MadeDeltas made(2);
  made.add_all(tensor, "tight");
  Worker worker;
  worker.hold(tensor, {{{{1, 0, 0}, {4, 520, 640}}, 2, 0}, {{{7, 0, 0}, {2, 520, 640}}, 0, 5}});
  StagedDeltas staged = must(DeltaStager().stage(made.deltas(), worker.held));
  EXPECT_EQ(staged.undecoded, Names());
  worker.expect_swaps(&staged);
}

// A box that cuts a tile stays undecoded, unless another box has the rest.
TEST(StageTest, TilesNotHeldWholeStayUndecoded) {
  const VersionedTensor tensor = make_versions("w", DType::kBF16, {2048, 1024}, 1, 0.01, 3);
  MadeDeltas made(1);
  made.add_all(tensor, "tight");
  const Box top{{0, 0}, {700, 1024}}, bottom{{700, 0}, {1348, 1024}};
  Worker cut;
  cut.hold(tensor, {{top}});
  StagedDeltas staged = must(DeltaStager().stage(made.deltas(), cut.held));
  EXPECT_EQ(staged.undecoded, Names{"w"});
  EXPECT_EQ(staged.exchange.num_changed(), 0);
  cut.expect_swaps(&staged);
  Worker both;
  both.hold(tensor, {{top, 4}, {bottom}});
  staged = must(DeltaStager().stage(made.deltas(), both.held));
  EXPECT_EQ(staged.undecoded, Names());
  both.expect_swaps(&staged);
  // Then all that is held of this tensor stays undecoded.
  both.hold(tensor, {{bottom}});
  staged = must(DeltaStager().stage(made.deltas(), both.held));
  EXPECT_EQ(staged.undecoded, Names{"w"});
  EXPECT_EQ(staged.exchange.num_changed(), 0);
}

TEST(StageTest, PartsOfTensorsCodedWholeStayUndecoded) {
  std::deque<VersionedTensor> tensors;
  MadeDeltas made(2);
  Worker worker;
  for (const Codec* codec : all_codecs()) {
    tensors.push_back(make_versions(std::string(codec->name()), DType::kBF16, {40, 48}, 2, 0.1, 4));
    made.add_all(tensors.back(), codec->name().data());
    worker.hold(tensors.back(), {{{{10, 8}, {20, 16}}, 6, 1}});
  }
  StagedDeltas staged = must(DeltaStager().stage(made.deltas(), worker.held));
  EXPECT_EQ(staged.undecoded, (Names{"adaptive", "tight"}));
  EXPECT_EQ(staged.changed, (Names{"adaptive", "exponents", "gaps", "raw", "tight"}));
  worker.expect_swaps(&staged);
}

TEST(StageTest, StagesRandomBoxesAndStrides) {
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    const auto up_to = [&](uint64_t n) { return random() % (n + 1); };
    constexpr DType kTypes[] = {DType::kBF16, DType::kF32, DType::kF8_E5M2, DType::kI64,
                                DType::kC64};
    std::deque<VersionedTensor> tensors;
    MadeDeltas made(1 + up_to(2));
    Worker worker;
    for (size_t i = 0; i < 4; ++i) {
      const bool tiled = up_to(2) == 0;
      Shape shape;
      for (size_t d = tiled ? 1 : up_to(2); d-- > 0;) shape.push_back(1 + up_to(4));
      shape.push_back(tiled ? 256 + up_to(500) : 1 + up_to(60));
      shape.push_back(tiled ? 512 + 64 * up_to(9) : 1 + up_to(60));
      const DType dtype = tiled ? DType::kBF16 : kTypes[up_to(4)];
      tensors.push_back(make_versions("t" + std::to_string(i), dtype, shape, made.deltas().size(),
                                      0.02, random()));
      const VersionedTensor& tensor = tensors.back();
      for (size_t delta = 0; delta < made.deltas().size(); ++delta) {
        const std::string codec(tiled ? "tight" : all_codecs()[up_to(4)]->name());
        for (const Box& box : slices_of(shape, up_to(shape.size() - 1), 1 + up_to(2))) {
          made.add(delta, tensor, box, codec.c_str());
        }
      }
      std::vector<BoxMemory> boxes;
      for (Box& box : slices_of(shape, up_to(shape.size() - 1), 1 + up_to(2))) {
        const size_t width = layout_of(dtype).width;
        if (up_to(4) != 0) boxes.push_back({std::move(box), up_to(3) * width, up_to(7)});
      }
      worker.hold(tensor, boxes);
    }
    const StageOptions options{.scratch_bytes = 1 + up_to(1 << 20), .threads = 2};
    StagedDeltas staged = must(DeltaStager().stage(made.deltas(), worker.held, options));
    for (const std::string& name : staged.undecoded) {
      const HeldBoxes& held = worker.held[size_t(name[1] - '0')];
      uint64_t bytes = 0;
      for (const LocalBox& box : held.boxes) {
        bytes += must(tensor_size_bytes(held.dtype, box.box.extent));
      }
      EXPECT_LT(bytes, must(tensor_size_bytes(held.dtype, held.shape))) << "all of it is held";
    }
    worker.expect_swaps(&staged);
    ASSERT_FALSE(HasFailure());
  }
}

TEST(StageTest, RevertedChangesAreNotListed) {
  VersionedTensor tensor = make_versions("w", DType::kBF16, {64, 64}, 2, 0.1, 5);
  std::vector<std::vector<uint8_t>>& versions = tensor.versions;
  for (size_t i = 0; i < versions[2].size() / 2; ++i) versions[2][i] = versions[0][i];
  MadeDeltas made(2);
  made.add_all(tensor, "gaps");
  Worker worker;
  worker.hold(tensor, {{}});
  StagedDeltas staged = must(DeltaStager().stage(made.deltas(), worker.held));
  EXPECT_LT(staged.exchange.num_changed(), 64 * 64 / 3);
  worker.expect_swaps(&staged);
}

TEST(StageTest, TensorsNotHeldAreOnlyListed) {
  const VersionedTensor one = make_versions("one", DType::kBF16, {64, 64}, 1, 0.1, 6),
                        two = make_versions("two", DType::kBF16, {64, 64}, 1, 0.1, 7);
  MadeDeltas made(1);
  made.add_all(two, "gaps");
  made.add_all(one, "gaps");
  made.deltas()[0].info.removed = {"gone"};
  Worker worker;
  worker.hold(two, {{{{1, 0}, {4, 64}}}});
  StagedDeltas staged = must(DeltaStager().stage(made.deltas(), worker.held));
  EXPECT_EQ(staged.changed, (Names{"gone", "one", "two"}));
  worker.expect_swaps(&staged);
  staged = must(DeltaStager().stage({}, worker.held));
  EXPECT_EQ(staged.changed, Names());
  EXPECT_EQ(staged.exchange.num_changed(), 0);
}

TEST(StageTest, RejectsAnotherDtypeOrShape) {
  const VersionedTensor tensor = make_versions("w", DType::kBF16, {64, 64}, 1, 0.1, 8);
  MadeDeltas made(1);
  made.add_all(tensor, "gaps");
  std::vector<uint8_t> memory = tensor.versions[0];
  const LocalBox box{{}, memory.data(), {}};
  const auto refused = [&](HeldBoxes held, Code code, std::string_view words) {
    const Status status = failure(made.deltas(), {std::move(held)});
    EXPECT_EQ(status.code(), code);
    EXPECT_TRUE(contains(status.message(), words));
    EXPECT_TRUE(contains(status.message(), "tensor \"w\""));
    EXPECT_EQ(first_difference(tensor.versions[0], memory), "");
  };
  refused({{"w", DType::kF16, {64, 64}}, {box}}, Code::kBaseMismatch,
          "held as F16 [64, 64], but the delta has BF16 [64, 64]");
  refused({{"w", DType::kBF16, {32, 128}}, {box}}, Code::kBaseMismatch, "held as BF16 [32, 128]");
  const auto held = [&](LocalBox own) {
    own.data = memory.data();
    return HeldBoxes{{"w", DType::kBF16, {64, 64}}, {std::move(own)}};
  };
  refused(held({{{0, 1}, {64, 64}}, nullptr, {}}), Code::kInvalidArgument, "leaves dimension 1");
  refused(held({{}, nullptr, {126}}), Code::kInvalidArgument, "expected 128 bytes or more");
  refused(held({{}, nullptr, {131}}), Code::kInvalidArgument, "a multiple of 2, got 131");
  refused(held({{}, nullptr, {1, 2}}), Code::kInvalidArgument, "expected 1, got 2");
  refused({{"w", DType::kBF16, {64, 64}}, {{}}}, Code::kInvalidArgument, "a box has no memory");
  made.deltas()[0].info.removed = {"w"};
  refused({{"w", DType::kBF16, {64, 64}}, {box}}, Code::kBaseMismatch, "removed by a delta");
}

TEST(StageTest, ErrorsOfBadPayloadsNameTheirPart) {
  const VersionedTensor good = make_versions("a", DType::kBF16, {2048, 2048}, 2, 0.01, 9),
                        bad = make_versions("b", DType::kBF16, {2048, 2048}, 2, 0.01, 10);
  for (const char* codec : {"raw", "gaps", "tight", "exponents", "adaptive"}) {
    MadeDeltas made(2);
    made.add_all(good, codec);
    made.add_all(bad, codec);
    Worker worker;
    worker.hold(good, {{}});
    worker.hold(bad, {{}});
    Bytes& payload = made.deltas()[1].entries[1].payload;
    payload = payload.first(payload.size() / 2);
    const Status status = failure(made.deltas(), worker.held);
    EXPECT_EQ(status.code(), Code::kCorruption) << codec << ": " << status.to_string();
    EXPECT_TRUE(contains(status.message(), "delta 1, tensor \"b\""));
    for (const Worker::Part& part : worker.parts) {
      EXPECT_EQ(first_difference(part.tensor->versions[0], part.bytes), "");
    }
  }
}

// Strides so large that offsets from the first row exceed 32 bits. Few of the pages are touched.
TEST(StageTest, StagesStridesOfBillionsOfElements) {
  const VersionedTensor tensor = make_versions("w", DType::kU8, {5, 100}, 1, 0.3, 11);
  MadeDeltas made(1);
  made.add_all(tensor, "gaps");
  for (const size_t stride : {size_t{1} << 30, (size_t{3} << 30) + 4096, size_t{5} << 30}) {
    const size_t size = 4 * stride + 100;
    void* const memory = mmap(nullptr, size, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    ASSERT_NE(memory, MAP_FAILED);
    auto* const data = static_cast<uint8_t*>(memory);
    const auto row = [&](size_t i, size_t version) {
      return Bytes(tensor.versions[version]).subspan(i * 100, 100);
    };
    for (size_t i = 0; i < 5; ++i) std::ranges::copy(row(i, 0), data + i * stride);
    const HeldBoxes held{{"w", DType::kU8, {5, 100}}, {{{}, data, {int64_t(stride)}}}};
    StagedDeltas staged = must(DeltaStager().stage(made.deltas(), {&held, 1}));
    ASSERT_TRUE(staged.exchange.swap().ok());
    for (size_t i = 0; i < 5; ++i) {
      EXPECT_TRUE(std::ranges::equal(row(i, 1), Bytes(data + i * stride, 100)))
          << "row " << i << ", stride " << stride;
    }
    munmap(memory, size);
  }
}

}  // namespace
}  // namespace deltawire::testing
