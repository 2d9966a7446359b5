// Tensors that are computed while they are read give the same versions as tensors in memory, and an
// error of the computation fails the publish.
#include <bit>

#include "diff/computed_tensors.h"
#include "kernels/bf16.h"
#include "kernels/f16.h"
#include "support/hooked_store.h"
#include "support/published_model.h"

namespace deltawire::testing {
namespace {

// Computes a copy for each read: the bytes exist only during it.
class ComputedBody final : public Body {
 public:
  ComputedBody(const TestTensor& tensor, const Status& failure)
      : tensor_(tensor), failure_(failure) {}
  uint64_t size() const noexcept override { return tensor_.bytes.size(); }
  Status read(uint64_t offset, std::span<uint8_t> out) const override {
    if (!failure_.ok()) return failure_;
    std::copy_n(tensor_.bytes.begin() + ptrdiff_t(offset), out.size(), out.begin());
    return {};
  }

 private:
  const TestTensor& tensor_;
  const Status& failure_;
};

class ComputedTest : public ::testing::Test {
 protected:
  ComputedTest() {
    model_.tensors.push_back(make_tensor("embed", DType::kF8_E4M3, {4000, 600}, 1));
    model_.tensors.push_back(make_tensor("scales", DType::kF32, {32, 5}, 2));
  }
  std::vector<PublishTensor> made() const {
    std::vector<PublishTensor> tensors;
    for (const TestTensor& tensor : model_.tensors) {
      PublishTensor own{{tensor.name, tensor.dtype, tensor.shape, {}}, {}};
      own.computed = std::make_shared<ComputedBody>(tensor, failure_);
      tensors.push_back(std::move(own));
    }
    return tensors;
  }
  void step() {
    for (TestTensor& tensor : model_.tensors) {
      for (size_t i = 7; i < tensor.bytes.size(); i += 701) tensor.bytes[i] ^= 1;
    }
  }

  std::shared_ptr<HookedStore> store_ = std::make_shared<HookedStore>();
  Model model_;
  Status failure_;
};

TEST_F(ComputedTest, VersionsEqualThoseOfTensorsInMemory) {
  TempFolder folder;
  for (const bool on_disk : {false, true}) {
    store_ = std::make_shared<HookedStore>();
    PublishOptions how;
    how.limits.memory_bytes = uint64_t{32} << 20;  // the larger one is cut in slices
    if (on_disk) how.snapshot = SnapshotInFolder{folder.path()};
    Publisher publisher = Publisher::open(store_, how).value();
    for (uint64_t version = 0; version < 4; ++version) {
      if (version == 3) {
        ASSERT_TRUE(publisher.capture(made()).ok());
      }
      const auto report = must(version == 3 ? publisher.finish() : publisher.publish(made()));
      EXPECT_EQ(report.full, version == 0) << report.reason;
      EXPECT_TRUE(report.warnings.empty()) << report.warnings[0];
      EXPECT_TRUE(holds(store_, version, model_));
      step();
    }
  }
}

TEST_F(ComputedTest, FailureOfTheComputationCommitsNothing) {
  Publisher publisher = Publisher::open(store_).value();
  for (uint64_t version = 0; version < 2; ++version) {  // a whole one, and a delta
    failure_ = invalid_argument("tensor \"embed\": holds NaN");
    EXPECT_FAILS(publisher.publish(made()), kInvalidArgument, "holds NaN");
    EXPECT_FALSE(publisher.capture(made()).ok());
    failure_ = {};
    EXPECT_EQ(must(publisher.publish(made())).version, version);
    EXPECT_TRUE(holds(store_, version, model_));
    step();
  }
}

TEST_F(ComputedTest, RejectsWrongShapesAndBytesGivenToo) {
  Publisher publisher = Publisher::open(store_).value();
  std::vector<PublishTensor> tensors = made();
  tensors[1].view.shape = {32, 6};
  EXPECT_FAILS(publisher.publish(tensors), kInvalidArgument,
               "tensor \"scales\": expected 768 bytes, got 640");
  tensors = made();
  tensors[1].view.bytes = model_.tensors[1].bytes;
  EXPECT_FAILS(publisher.publish(tensors), kInvalidArgument,
               "tensor \"scales\": is computed during the publish, but bytes are given too");
  EXPECT_TRUE(publisher.publish(made()).ok());
}

// ---- Master weights in host memory that are published rounded: the same bits as torch's rounding
// for any range of bytes, and the same versions as a rounded copy.

TEST(RoundingTest, F16RoundsToNearestEven) {
  for (uint32_t bits = 0; bits < 0x7c00; ++bits) {  // all that are finite, and both signs
    for (const uint32_t sign : {0U, 0x8000U}) {
      const uint32_t f16 = sign | bits;
      const uint32_t own = f32_of_f16(f16);
      EXPECT_EQ(f16_of_f32(own), f16);
      // Half-way to the next value, which is exact in F32; above the largest, the next is infinity.
      const double low = std::bit_cast<float>(f32_of_f16(bits));
      const double high = bits == 0x7bff ? 65536.0 : std::bit_cast<float>(f32_of_f16(bits + 1));
      const uint32_t half = std::bit_cast<uint32_t>(float((low + high) / 2)) | sign << 16;
      EXPECT_EQ(f16_of_f32(half), f16 + (bits & 1)) << bits;
      EXPECT_EQ(f16_of_f32(half - 1), f16) << bits;
      EXPECT_EQ(f16_of_f32(half + 1), f16 + 1) << bits;
    }
  }
  EXPECT_EQ(f16_of_f32(0x7f800000), 0x7c00);
  EXPECT_EQ(f16_of_f32(0xff800000), 0xfc00);
  EXPECT_EQ(f16_of_f32(0x7f800001), 0x7e00);  // NaN
  EXPECT_EQ(f16_of_f32(0xffc12345), 0xfe00);
  EXPECT_EQ(f16_of_f32(0x00000001), 0);
  EXPECT_EQ(f16_of_f32(0x80000001), 0x8000);
}

PublishTensor masters_of(const std::vector<float>& values, DType as) {
  const Bytes bytes{reinterpret_cast<const uint8_t*>(values.data()), values.size() * 4};
  return {{"w", as, {values.size()}, bytes}, {}, Memory::kHost, DType::kF32};
}

TEST(RoundingTest, BytesAreTheSameForAnyRange) {
  std::mt19937 random(3);
  std::vector<float> values(100);
  for (float& value : values) value = std::bit_cast<float>(uint32_t(random()));
  for (const DType as : {DType::kBF16, DType::kF16}) {
    const PublishTensor tensor = masters_of(values, as);
    ASSERT_TRUE(is_computed(tensor));
    std::vector<uint8_t> all(200);
    ASSERT_TRUE(read_published(tensor, 0, all).ok());
    for (size_t i = 0; i < values.size(); ++i) {
      const uint32_t f32 = std::bit_cast<uint32_t>(values[i]);
      const uint32_t expected = as == DType::kBF16 ? bf16_of_f32(f32) : f16_of_f32(f32);
      EXPECT_EQ(all[2 * i] | all[2 * i + 1] << 8, expected);
    }
    for (size_t begin = 0; begin < 12; ++begin) {
      for (size_t size = 0; size < 12; ++size) {
        std::vector<uint8_t> piece(size);
        ASSERT_TRUE(read_published(tensor, begin, piece).ok());
        EXPECT_TRUE(std::equal(piece.begin(), piece.end(), all.begin() + ptrdiff_t(begin)));
      }
    }
    EXPECT_EQ(published_digest(tensor).value(), digest_of(DigestKind::kSum128, all));
    std::vector<uint8_t> read(200);
    ASSERT_TRUE(published_body(tensor)->read(0, read).ok());
    EXPECT_EQ(read, all);
  }
}

// A model of F32 masters, and its rounded form.
class RoundedPublisherTest : public ::testing::Test {
 protected:
  RoundedPublisherTest() {
    add("embed", {600, 64}, 1);
    add("norm", {64}, 2);
  }
  void add(const std::string& name, Shape shape, uint64_t seed) {
    masters_.tensors.push_back(make_tensor(name, DType::kF32, std::move(shape), seed));
  }
  std::vector<PublishTensor> views() const {
    std::vector<PublishTensor> views;
    for (const TestTensor& tensor : masters_.tensors) {
      views.push_back({{tensor.name, DType::kBF16, tensor.shape, tensor.bytes},
                       {},
                       Memory::kHost,
                       DType::kF32});
    }
    return views;
  }
  static uint64_t bytes(const Model& model) {
    uint64_t bytes = 0;
    for (const TestTensor& tensor : model.tensors) bytes += tensor.bytes.size();
    return bytes;
  }
  Model rounded() const {
    Model model;
    for (const PublishTensor& tensor : views()) {
      TestTensor own = make_tensor(tensor.view.name, DType::kBF16, tensor.view.shape, 0);
      EXPECT_TRUE(read_published(tensor, 0, own.bytes).ok());
      model.tensors.push_back(std::move(own));
    }
    return model;
  }
  // Changes most masters by less than bf16 can represent, and a few by more.
  void step() {
    std::mt19937 random(unsigned(++steps_));
    for (TestTensor& tensor : masters_.tensors) {
      for (size_t i = 0; i + 4 <= tensor.bytes.size(); i += 4) {
        if (random() % 4 == 0) tensor.bytes[i + (random() % 50 == 0 ? 2 : 0)] ^= 1;
      }
    }
  }

  std::shared_ptr<HookedStore> store_ = std::make_shared<HookedStore>();
  Model masters_;
  uint64_t steps_ = 0;
};

TEST_F(RoundedPublisherTest, VersionsEqualThoseOfARoundedCopy) {
  TempFolder folder;
  for (const bool on_disk : {false, true}) {
    store_ = std::make_shared<HookedStore>();
    PublishOptions how{.limits = {.threads = 2, .memory_bytes = uint64_t{32} << 20},
                       .schema_change = true};
    if (on_disk) how.snapshot = SnapshotInFolder{folder.path() / "snapshot"};
    Publisher publisher = Publisher::open(store_, how).value();
    for (uint64_t version = 0; version < 5; ++version) {
      if (version == 3) add("late" + std::to_string(on_disk), {30, 8}, 9);
      if (version == 4) {
        ASSERT_TRUE(publisher.capture(views()).ok());
      }
      const Model expected = rounded();
      const auto report = must(version == 4 ? publisher.finish() : publisher.publish(views()));
      EXPECT_EQ(report.version, version);
      EXPECT_EQ(report.full, version == 0) << report.reason;
      EXPECT_TRUE(report.warnings.empty()) << report.warnings[0];
      EXPECT_TRUE(holds(store_, version, expected));
      step();
    }
    EXPECT_EQ(publisher.memory().host, on_disk ? 0 : bytes(rounded()));
  }
}

TEST_F(RoundedPublisherTest, SameRoundedValuesAreNoChange) {
  Publisher publisher = Publisher::open(store_).value();
  ASSERT_TRUE(publisher.publish(views()).ok());
  masters_.tensors[0].bytes[400] ^= 1;  // the last bit of a master
  EXPECT_FALSE(must(publisher.publish(views())).committed);
}

TEST_F(RoundedPublisherTest, RejectsTypesThatCannotBeRounded) {
  Publisher publisher = Publisher::open(store_).value();
  std::vector<PublishTensor> tensors = views();
  tensors[0].view.dtype = DType::kI32;
  EXPECT_FAILS(publisher.publish(tensors), kInvalidArgument,
               "tensor \"embed\": F32 cannot be published as I32");
  tensors = views();
  tensors[1].source = DType::kU32;
  EXPECT_FAILS(publisher.publish(tensors), kInvalidArgument,
               "tensor \"norm\": U32 cannot be published as BF16");
}

}  // namespace
}  // namespace deltawire::testing
