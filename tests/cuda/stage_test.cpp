// Deltas staged over weights on a GPU, beside weights in host memory.
#include "live/stage.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "cuda/contexts.h"
#include "support/stage_model.h"

namespace deltawire::cuda {
namespace {

// Boxes of tensors at their first version, on the GPU.
class DeviceWorker {
 public:
  void hold(const VersionedTensor& tensor, const std::vector<BoxMemory>& boxes) {
    HeldBoxes own{{tensor.name, tensor.dtype, tensor.shape}, {}, Memory::kCuda};
    for (const BoxMemory& memory : boxes) {
      parts_.push_back({&tensor, memory, OnDevice(memory.filled(tensor, 0))});
      own.boxes.push_back(memory.at(tensor, parts_.back().bytes.data()));
    }
    held_.push_back(std::move(own));
  }
  std::vector<HeldBoxes>& held() { return held_; }

  // Staging writes nothing; swaps give the last version and then the first again.
  void expect_swaps(StagedDeltas* staged) {
    expect_version(0, *staged, "staged");
    uint64_t changed = 0;
    for (const Part& part : parts_) {
      if (!decoded(part, *staged)) continue;
      changed += count_changed(*part.tensor, part.memory, part.memory.filled(*part.tensor, 0),
                               part.memory.filled(*part.tensor, last(part)));
    }
    EXPECT_EQ(staged->exchange.num_changed(), changed);
    const OwnedStream stream = std::move(OwnedStream::create()).value();
    for (const bool forward : {true, false, true, false}) {
      ASSERT_GOOD(staged->exchange.swap(stream.get()));
      expect_version(forward, *staged, forward ? "swapped" : "swapped back");
    }
  }

 private:
  struct Part {
    const VersionedTensor* tensor;
    BoxMemory memory;
    OnDevice bytes;
  };

  static size_t last(const Part& part) { return part.tensor->versions.size() - 1; }
  static bool decoded(const Part& part, const StagedDeltas& staged) {
    return std::ranges::count(staged.undecoded, part.tensor->name) == 0;
  }
  void expect_version(bool newest, const StagedDeltas& staged, const char* when) {
    for (const Part& part : parts_) {
      const size_t version = newest && decoded(part, staged) ? last(part) : 0;
      EXPECT_EQ(first_difference(part.memory.filled(*part.tensor, version), part.bytes.fetch()), "")
          << part.tensor->name << ", box " << box_to_string(part.memory.box) << " of "
          << shape_to_string(part.tensor->shape) << ", " << when;
    }
  }

  std::deque<Part> parts_;
  std::vector<HeldBoxes> held_;
};

using Names = std::vector<std::string>;

// In waves of all tensors and of single ones, with lists on the device and in pinned memory.
void expect_every_way(MadeDeltas* made, DeviceWorker* worker, const Names& undecoded) {
  for (const uint64_t scratch_bytes : {256 * kMiB, kMiB}) {
    for (const std::optional<uint64_t> device_bytes :
         {std::optional<uint64_t>(), std::optional<uint64_t>(64 << 10),
          std::optional<uint64_t>(0)}) {
      SCOPED_TRACE("scratch " + std::to_string(scratch_bytes) + ", lists " +
                   std::to_string(device_bytes.value_or(UINT64_MAX)));
      Result<StagedDeltas> staged =
          DeltaStager().stage(made->deltas(), worker->held(), {device_bytes, scratch_bytes, 2});
      ASSERT_TRUE(staged.ok()) << staged.status().to_string();
      EXPECT_EQ(staged->undecoded, undecoded);
      if (device_bytes) {
        constexpr uint64_t kTables = kMiB;
        EXPECT_LE(staged->exchange.device_bytes(), *device_bytes + kTables);
      }
      if (device_bytes == 0U && staged->exchange.num_changed() != 0) {
        EXPECT_GT(staged->exchange.host_bytes(), 0);
      }
      worker->expect_swaps(&*staged);
      if (::testing::Test::HasFailure()) return;
    }
  }
}

TEST(StageOnGpuTest, StagesEveryCodecOntoWholeTensors) {
  SKIP_WITHOUT_GPU();
  MadeDeltas made(2);
  std::deque<VersionedTensor> tensors;
  DeviceWorker worker;
  const std::vector<std::pair<DType, Shape>> forms = {
      {DType::kBF16, {700, 1024}}, {DType::kBF16, {3, 40, 48}}, {DType::kF32, {5000}},
      {DType::kF64, {}},           {DType::kF64, {300}},        {DType::kF8_E4M3, {130, 131}},
      {DType::kF4, {7, 5, 6}},     {DType::kC64, {40, 24}},     {DType::kU8, {0, 4}}};
  for (const Codec* codec : all_codecs()) {
    for (size_t i = 0; i < forms.size(); ++i) {
      const auto& [dtype, shape] = forms[i];
      const std::string name = std::string(codec->name()) + std::to_string(i);
      tensors.push_back(make_versions(name, dtype, shape, 2, 0.05, i));
      made.add_all(tensors.back(), codec->name().data());
      const size_t width = layout_of(dtype).width;
      worker.hold(tensors.back(), {{{}, i % 2 * 3 * width, i % 4}});
    }
  }
  expect_every_way(&made, &worker, {});
}

// Matrices larger than a wave, held by rows and by columns; a publisher's boxes have other
// borders.
TEST(StageOnGpuTest, StagesTilesOfLargeMatrices) {
  SKIP_WITHOUT_GPU();
  const VersionedTensor tensor = make_versions("w", DType::kBF16, {5000, 1024}, 3, 0.01, 1),
                        wide = make_versions("wide", DType::kBF16, {1024, 4096}, 3, 0.01, 2),
                        experts = make_versions("x", DType::kBF16, {9, 520, 640}, 3, 0.01, 3);
  MadeDeltas made(3);
  made.add(0, tensor, {}, "tight");
  for (const Box& box : slices_of(tensor.shape, 0, 3)) made.add(1, tensor, box, "tight");
  for (const Box& box : slices_of(tensor.shape, 1, 2)) made.add(2, tensor, box, "tight");
  made.add_all(wide, "tight");
  made.add_all(experts, "tight");
  DeviceWorker worker;
  worker.hold(tensor, {{{}, 0, 3}});
  worker.hold(tensor, {{{}, 34, 2}});
  worker.hold(tensor, {{{{0, 512}, {5000, 256}}, 6, 1}, {{{0, 0}, {5000, 128}}, 0, 0}});
  worker.hold(wide, {{{{512, 0}, {512, 4096}}, 0, 0}, {{{0, 0}, {512, 512}}, 1024, 16}});
  worker.hold(wide, {{{{0, 1024}, {1024, 1024}}, 0, 8}});
  worker.hold(experts, {{{{1, 0, 0}, {4, 520, 640}}, 2, 0}, {{{7, 0, 0}, {2, 520, 640}}, 0, 5}});
  expect_every_way(&made, &worker, {});
}

// The host decodes what a GPU does not; what neither can decode is left alone.
TEST(StageOnGpuTest, StagesPartsOfTensorsAndCutTiles) {
  SKIP_WITHOUT_GPU();
  std::deque<VersionedTensor> tensors;
  MadeDeltas made(2);
  DeviceWorker worker;
  for (const Codec* codec : all_codecs()) {
    tensors.push_back(make_versions(std::string(codec->name()), DType::kBF16, {40, 48}, 2, 0.1, 4));
    made.add_all(tensors.back(), codec->name().data());
    worker.hold(tensors.back(), {{{{10, 8}, {20, 16}}, 6, 1}});
  }
  const auto add_tiled = [&](const char* name) -> const VersionedTensor& {
    tensors.push_back(make_versions(name, DType::kBF16, {2048, 1024}, 2, 0.01, 5));
    made.add_all(tensors.back(), "tight");
    return tensors.back();
  };
  const Box top{{0, 0}, {700, 1024}}, bottom{{700, 0}, {1348, 1024}};
  worker.hold(add_tiled("cut"), {{top}});
  worker.hold(add_tiled("joined"), {{top, 4}, {bottom}});
  const VersionedTensor& twice = add_tiled("twice");
  worker.hold(twice, {{{}}});
  worker.hold(twice, {{top}});
  expect_every_way(&made, &worker, {"adaptive", "cut", "tight", "twice"});
}

// More changes than there is room for at first, and tensors in both memories.
TEST(StageOnGpuTest, StagesManyChangesBesideHostMemory) {
  SKIP_WITHOUT_GPU();
  const VersionedTensor dense = make_versions("dense", DType::kBF16, {1000, 1024}, 1, 0.6, 6),
                        sparse = make_versions("sparse", DType::kF32, {300, 400}, 1, 0.001, 7),
                        host = make_versions("host", DType::kBF16, {512, 512}, 1, 0.1, 8);
  MadeDeltas made(1);
  made.add_all(dense, "tight");
  made.add_all(sparse, "gaps");
  made.add_all(host, "tight");
  DeviceWorker worker;
  worker.hold(sparse, {{}});
  worker.hold(dense, {{}});
  expect_every_way(&made, &worker, {});
  std::vector<uint8_t> memory = host.versions[0];
  worker.held().push_back({{"host", DType::kBF16, {512, 512}}, {{{}, memory.data(), {}}}});
  StagedDeltas staged = must(DeltaStager().stage(made.deltas(), worker.held()));
  ASSERT_GOOD(staged.exchange.swap());
  EXPECT_EQ(first_difference(host.versions[1], memory), "");
  ASSERT_GOOD(staged.exchange.swap());
  EXPECT_EQ(first_difference(host.versions[0], memory), "");
}

TEST(StageOnGpuTest, ErrorsOfBadPayloadsNameTheirPart) {
  SKIP_WITHOUT_GPU();
  const VersionedTensor good = make_versions("a", DType::kBF16, {2048, 2048}, 2, 0.01, 9),
                        bad = make_versions("b", DType::kBF16, {2048, 2048}, 2, 0.01, 10);
  for (const char* codec : {"raw", "gaps", "tight", "exponents", "adaptive"}) {
    for (const bool cut : {true, false}) {
      MadeDeltas made(2);
      made.add_all(good, codec);
      made.add_all(bad, codec);
      DeviceWorker worker;
      worker.hold(good, {{}});
      worker.hold(bad, {{}});
      Bytes& payload = made.deltas()[1].entries[1].payload;
      std::vector<uint8_t> damaged(payload.begin(), payload.end());
      if (cut) {
        damaged.resize(damaged.size() / 2);
      } else {  // what the device finds: bits inside blocks
        if (std::string_view(codec) != "tight") continue;
        for (size_t i = damaged.size() / 2; i < damaged.size(); ++i) damaged[i] ^= 0x55;
      }
      payload = damaged;
      const Status status = DeltaStager().stage(made.deltas(), worker.held()).status();
      EXPECT_EQ(status.code(), Code::kCorruption) << codec << ": " << status.to_string();
      EXPECT_TRUE(mentions(status, "delta 1, tensor \"b\"")) << status.to_string();
      for (Delta& delta : made.deltas()) delta.entries.clear();
      StagedDeltas none = must(DeltaStager().stage(made.deltas(), worker.held()));
      EXPECT_EQ(none.exchange.num_changed(), 0);
    }
  }
}

TEST(StageOnGpuTest, RejectsBoxesThatShareMemory) {
  SKIP_WITHOUT_GPU();
  const VersionedTensor tensor = make_versions("w", DType::kBF16, {64, 64}, 1, 0.5, 11);
  MadeDeltas made(1);
  made.add_all(tensor, "gaps");
  DeviceWorker worker;
  worker.hold(tensor, {{}});
  worker.held().push_back(worker.held()[0]);
  const Status status = DeltaStager().stage(made.deltas(), worker.held()).status();
  EXPECT_EQ(status.code(), Code::kInvalidArgument) << status.to_string();
}

// Prints the time for 1 GB of weights: set DELTAWIRE_STAGE_GB, DELTAWIRE_STAGE_SCRATCH_MB.
TEST(StageOnGpuTest, PrintsItsSpeed) {
  SKIP_WITHOUT_GPU();
  const auto number = [](const char* name, uint64_t otherwise) {
    const char* const text = std::getenv(name);
    return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
  };
  const uint64_t count = 16 * number("DELTAWIRE_STAGE_GB", 1),
                 scratch = number("DELTAWIRE_STAGE_SCRATCH_MB", 256) * kMiB;
  const VersionedTensor tensor = make_versions("w", DType::kBF16, {8192, 4096}, 1, 0.012, 12);
  MadeDeltas one(1);
  one.add_all(tensor, "tight");
  std::vector<Delta> deltas(1);
  std::deque<OnDevice> memory;
  std::vector<HeldBoxes> held;
  for (uint64_t i = 0; i < count; ++i) {
    deltas[0].entries.push_back(one.deltas()[0].entries[0]);
    Delta::Entry& entry = deltas[0].entries.back();
    entry.entry.tensor += std::to_string(i);
    memory.emplace_back(tensor.versions[0]);
    held.push_back({{entry.entry.tensor, DType::kBF16, tensor.shape},
                    {{{}, memory.back().data(), {}}},
                    Memory::kCuda});
  }
  for (int round = 0; round < 4; ++round) {
    const auto begin = std::chrono::steady_clock::now();
    Result<StagedDeltas> staged = DeltaStager().stage(deltas, held, {{}, scratch, 0});
    const std::chrono::duration<double, std::milli> taken =
        std::chrono::steady_clock::now() - begin;
    ASSERT_TRUE(staged.ok()) << staged.status().to_string();
    const uint64_t changed = staged->exchange.num_changed();
    ASSERT_GOOD(staged->exchange.swap());
    ASSERT_EQ(first_difference(tensor.versions[1], memory.back().fetch()), "");
    ASSERT_GOOD(staged->exchange.swap());
    std::printf("%.2f GB, %.2f M changes, scratch %llu MiB: %.1f ms\n",
                double(count * tensor.versions[0].size()) / 1e9, double(changed) / 1e6,
                static_cast<unsigned long long>(scratch / kMiB), taken.count());
  }
}

}  // namespace
}  // namespace deltawire::cuda
