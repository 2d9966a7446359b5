// FP8 blocks of weights on a GPU without materialising them: encoders and publishers give the CPU's
// bytes.
#include "cuda/contexts.h"
#include "diff/computed_tensors.h"
#include "support/hooked_store.h"
#include "support/published_model.h"

namespace deltawire::cuda {
namespace {

// A trainer's matrix: weights on device and host, scales on the device, and the expected result.
struct Matrix {
  fp8::Matrix form;  // its weights are on the device
  std::vector<uint8_t> weights, elements;
  std::vector<float> scales;
  OnDevice there, scales_there;

  Matrix(uint64_t seed, WideFloat from, uint64_t rows, uint64_t columns)
      : form{nullptr, from, rows, columns} {
    Random random(seed);
    weights.resize(rows * columns * form.width());
    for (uint64_t i = 0; i < rows * columns; ++i) set(i, float(0.02 * normal(random)));
    scales.resize(form.rows_of_blocks() * form.columns_of_blocks());
    scales_there = OnDevice(std::vector<uint8_t>(scales.size() * 4));
    settle();
  }
  void set(uint64_t i, float value) {
    uint32_t bits = std::bit_cast<uint32_t>(value);
    if (form.width() == 2) bits >>= 16;
    std::memcpy(weights.data() + i * form.width(), &bits, form.width());
  }
  // Changes one weight in `one_in`.
  void step(uint64_t seed, uint64_t one_in) {
    Random random(seed);
    for (uint64_t i = 0; i < form.rows * form.columns; ++i) {
      if (random() % one_in == 0) set(i, float(0.02 * normal(random)));
    }
    settle();
  }
  // Computes the CPU's result, and sends the weights to the device.
  void settle() {
    fp8::Matrix here = form;
    here.weights = weights.data();
    for (uint64_t i = 0; i < form.rows_of_blocks(); ++i) {
      fp8::scales(here, i, scales.data() + i * form.columns_of_blocks());
    }
    elements.resize(form.rows * form.columns);
    fp8::elements(here, scales.data(), 0, elements);
    if (form.weights == nullptr) {
      there = OnDevice(weights);
    } else {
      ASSERT_GOOD(send(weights, there.data(), nullptr));
    }
    form.weights = there.data();
  }
  Fp8Weights source() const { return {form, reinterpret_cast<float*>(scales_there.data())}; }
  Bytes scale_bytes() const {
    return {reinterpret_cast<const uint8_t*>(scales.data()), scales.size() * 4};
  }
};

class ComputedFp8Test : public ::testing::Test {
 protected:
  void SetUp() override { SKIP_WITHOUT_GPU(); }
};

TEST_F(ComputedFp8Test, QuantisesMatricesOfAllDtypes) {
  std::vector<Matrix> matrices;
  std::vector<Fp8Task> tasks;
  std::vector<OnDevice> elements;
  for (const WideFloat from : {WideFloat::kF32, WideFloat::kBf16, WideFloat::kF32AsBf16,
                               WideFloat::kBf16, WideFloat::kF32}) {
    matrices.emplace_back(matrices.size(), from, 200 + matrices.size(), 264);
    elements.emplace_back(std::vector<uint8_t>(matrices.back().elements.size()));
    tasks.push_back({matrices.back().source(), nullptr, nullptr, elements.back().data()});
  }
  const auto done = quantise_fp8(tasks, Fp8Digests::kSum128, nullptr);
  ASSERT_TRUE(done.ok()) << done.status().to_string();
  for (size_t i = 0; i < matrices.size(); ++i) {
    const Matrix& matrix = matrices[i];
    EXPECT_TRUE((*done)[i].bounded);
    EXPECT_EQ((*done)[i].digest, digest_of(DigestKind::kSum128, matrix.elements)) << i;
    EXPECT_EQ(elements[i].fetch(), matrix.elements) << i;
    const std::vector<uint8_t> scales = matrix.scales_there.fetch();
    EXPECT_TRUE(std::equal(scales.begin(), scales.end(), matrix.scale_bytes().begin())) << i;
  }
}

TEST_F(ComputedFp8Test, EncodersAcceptMarks) {
  const char* const codecs[] = {"tight", "gaps", "adaptive", "auto", "raw", "exponents"};
  constexpr std::pair<uint64_t, bool> kRounds[] = {
      {8 * kMiB, false}, {256 * kMiB, false}, {8 * kMiB, true}, {256 * kMiB, true}};
  for (const auto& [scratch, tiled] : kRounds) {
    SCOPED_TRACE(tiled ? "in tiles" : "in order");
    Context context = make_context(scratch);
    DeviceSnapshot snapshot(&context, DeviceSnapshot::Placement::kDevice);
    std::vector<Matrix> matrices;
    std::vector<HostPair> pairs;
    std::vector<DeviceSnapshot::Slot> slots;
    std::vector<Fp8Task> tasks;
    std::vector<OnDevice> marks;
    const uint64_t rows[] = {1024, 1030, 300, 2048}, columns[] = {512, 1056, 4128, 640};
    for (const WideFloat from : {WideFloat::kBf16, WideFloat::kF32AsBf16, WideFloat::kF32}) {
      for (size_t n = 0; n < std::size(rows); ++n) {
        matrices.emplace_back(n, from, rows[n], columns[n]);
        Matrix& matrix = matrices.back();
        ASSERT_TRUE(has_marks(matrix.source()));
        HostPair pair{1, matrix.elements, {}};
        if (tiled) {
          pair.rows = uint32_t(rows[n]);
          pair.columns = uint32_t(columns[n]);
        }
        ASSERT_EQ(choose_tiles(pair.layout(), pair.old_bytes.size()).tiled(), tiled) << n;
        const OnDevice before(matrix.elements);
        slots.push_back(good(snapshot.add(Contents{{DType::kF8_E4M3, before.data()},
                                                   DType::kF8_E4M3,
                                                   pair.old_bytes.size(),
                                                   {pair.rows, pair.columns}},
                                          nullptr)));
        // Few, none, all or some changes.
        if (n != 1) matrix.step(n + 7, n == 0 ? 500 : n == 2 ? 1 : 20);
        pair.new_bytes = matrix.elements;
        pairs.push_back(std::move(pair));
        marks.emplace_back(std::vector<uint8_t>(matrix.elements.size() / 8, 0xa5));
        tasks.push_back({matrix.source(), snapshot.data(slots.back()),
                         reinterpret_cast<uint32_t*>(marks.back().data()), nullptr});
      }
    }
    const auto looked = quantise_fp8(tasks, Fp8Digests::kNone, nullptr);
    ASSERT_TRUE(looked.ok()) << looked.status().to_string();
    const OnDevice room(std::vector<uint8_t>(marked_bytes(tasks.size()), 0));
    ASSERT_GOOD(mark_fp8(tasks, reinterpret_cast<MarkedFp8*>(room.data()), nullptr));
    std::vector<DeviceSnapshot::Change> changes;
    for (size_t i = 0; i < tasks.size(); ++i) {
      changes.push_back(
          {slots[i], {}, reinterpret_cast<const MarkedFp8*>(room.data() + marked_bytes(i))});
    }
    for (const char* const codec : codecs) {
      SCOPED_TRACE(codec);
      const auto coded = snapshot.encode(codec, changes, nullptr, NewDigests::kSum128);
      ASSERT_TRUE(coded.ok()) << coded.status().to_string();
      for (size_t i = 0; i < coded->size(); ++i) {
        const Coded& one = (*coded)[i];
        ASSERT_TRUE(one.payload == cpu_encode(one.codec, DType::kF8_E4M3, pairs[i]).payload)
            << i << " " << one.codec;
        EXPECT_EQ(one.new_digest, digest_of(DigestKind::kSum128, pairs[i].new_bytes)) << i;
        if (one.codec != "raw") {
          EXPECT_EQ((*looked)[i].changed, one.num_changed) << i;
        }
      }
    }
  }
}

TEST_F(ComputedFp8Test, RejectsMarksOfASingleBlock) {
  Context context = make_context();
  DeviceSnapshot snapshot(&context, DeviceSnapshot::Placement::kDevice);
  const Matrix small(1, WideFloat::kBf16, 128, 128);
  EXPECT_FALSE(has_marks(small.source()));
  const OnDevice before(small.elements), room(std::vector<uint8_t>(marked_bytes(1)));
  const auto slot = good(snapshot.add(
      Contents{{DType::kF8_E4M3, before.data()}, DType::kF8_E4M3, small.elements.size()}, nullptr));
  const DeviceSnapshot::Change change{slot, {}, reinterpret_cast<MarkedFp8*>(room.data())};
  const auto coded = snapshot.encode("tight", {&change, 1}, nullptr);
  EXPECT_EQ(coded.status().code(), Code::kInvalidArgument);
}

// A model of such matrices.
class Fp8PublisherTest : public ComputedFp8Test {
 protected:
  std::shared_ptr<testing::HookedStore> store = std::make_shared<testing::HookedStore>();
  std::vector<Matrix> matrices;

  void SetUp() override {
    ComputedFp8Test::SetUp();
    if (IsSkipped()) return;
    const struct {
      WideFloat from;
      uint64_t rows, columns;
    } forms[] = {{WideFloat::kBf16, 1024, 768},       // marked
                 {WideFloat::kF32AsBf16, 700, 1056},  // marked, cut short
                 {WideFloat::kBf16, 128, 128},        // a single block
                 {WideFloat::kF32, 600, 520},         // no marks, but whole words
                 {WideFloat::kBf16, 777, 501}};       // neither
    for (const auto& form : forms) {
      matrices.emplace_back(matrices.size(), form.from, form.rows, form.columns);
    }
  }
  std::vector<PublishTensor> views() {
    std::vector<PublishTensor> out;
    std::vector<Fp8Task> tasks;
    for (size_t i = 0; i < matrices.size(); ++i) {
      const Matrix& matrix = matrices[i];
      const std::string name = std::string("layer.") + char('0' + i);
      PublishTensor elements{
          {name + ".weight", DType::kF8_E4M3, {matrix.form.rows, matrix.form.columns}, {}},
          {},
          Memory::kCuda};
      elements.computed = std::make_shared<ComputedFp8>(matrix.source(), nullptr);
      tasks.push_back({matrix.source()});
      out.push_back(std::move(elements));
      out.push_back({{name + ".weight_scale_inv",
                      DType::kF32,
                      {matrix.form.rows_of_blocks(), matrix.form.columns_of_blocks()},
                      {matrix.scales_there.data(), matrix.scales.size() * 4}},
                     {},
                     Memory::kCuda});
    }
    EXPECT_TRUE(quantise_fp8(tasks, Fp8Digests::kNone, nullptr).ok());
    return out;
  }
  void expect_held(uint64_t version) const {
    const auto chain = Chain::open(store, {});
    ASSERT_TRUE(chain.ok());
    const auto state = fetch_state(*chain, version, nullptr, {});
    ASSERT_TRUE(state.ok()) << state.status().to_string();
    for (size_t i = 0; i < matrices.size(); ++i) {
      const std::string name = std::string("layer.") + char('0' + i);
      const auto elements = state->find(name + ".weight");
      const auto scales = state->find(name + ".weight_scale_inv");
      ASSERT_TRUE(elements != state->end() && scales != state->end());
      const Bytes expected = matrices[i].scale_bytes();
      EXPECT_TRUE(std::ranges::equal(elements->second.bytes, matrices[i].elements)) << i;
      EXPECT_TRUE(std::ranges::equal(scales->second.bytes, expected)) << i;
    }
  }
  void step(uint64_t seed, uint64_t one_in = 300) {
    for (Matrix& matrix : matrices) matrix.step(++seed, one_in);
  }
  Publisher open(PublishOptions options) {
    options.limits.threads = 2;
    return Publisher::open(store, options).value();
  }
};

TEST_F(Fp8PublisherTest, PublishesTheCpusBytes) {
  for (const bool pinned : {false, true}) {
    for (const char* const codec : {"auto", "tight", "gaps", "adaptive"}) {
      SCOPED_TRACE(codec);
      store = std::make_shared<testing::HookedStore>();
      PublishOptions options;
      options.codec = codec;
      options.snapshot = SnapshotInMemory{.pinned = pinned};
      Publisher publisher = open(options);
      for (uint64_t version = 0; version < 4; ++version) {
        const auto report = publisher.publish(views());
        ASSERT_TRUE(report.ok()) << report.status().to_string();
        EXPECT_TRUE(report->warnings.empty()) << report->warnings.front();
        EXPECT_EQ(report->version, version);
        EXPECT_EQ(report->full, version == 0);
        expect_held(version);
        step(version * 100);
      }
      ASSERT_TRUE(publisher.publish(views()).ok());
      EXPECT_FALSE(publisher.publish(views())->committed);  // the snapshot has followed
    }
  }
}

TEST_F(Fp8PublisherTest, RejectsNaNByName) {
  Publisher publisher = open({});
  ASSERT_TRUE(publisher.publish(views()).ok());
  matrices[1].set(1234, std::numeric_limits<float>::quiet_NaN());
  matrices[1].settle();
  const auto failed = publisher.publish(views());
  EXPECT_EQ(failed.status().code(), Code::kInvalidArgument);
  EXPECT_TRUE(mentions(failed.status(), "\"layer.1.weight\": holds NaN"))
      << failed.status().to_string();
  matrices[1].set(1234, 0.5F);
  matrices[1].settle();
  const auto good_again = publisher.publish(views());
  ASSERT_TRUE(good_again.ok()) << good_again.status().to_string();
  EXPECT_EQ(good_again->version, 1);
  expect_held(1);
}

// This changes no element.
void double_scales(Matrix* matrix) {
  for (uint64_t i = 0; i < matrix->form.rows * matrix->form.columns; ++i) {
    uint16_t bits;
    std::memcpy(&bits, matrix->weights.data() + 2 * i, 2);
    matrix->set(i, 2 * std::bit_cast<float>(uint32_t{bits} << 16));
  }
  matrix->settle();
}

// The change comes between the encoding pass and the final one.
TEST_F(Fp8PublisherTest, DetectsWeightsThatChangeMeanwhile) {
  for (const char* const codec : {"tight", "gaps", "auto"}) {
    SCOPED_TRACE(codec);
    store = std::make_shared<testing::HookedStore>();
    std::function<void()> meddle;
    PublishOptions options;
    options.codec = codec;
    options.progress = [&](uint64_t done, uint64_t total) {
      if (done != 0 && done < total && meddle) std::exchange(meddle, nullptr)();
      return true;
    };
    Publisher publisher = open(options);
    ASSERT_TRUE(publisher.publish(views()).ok());
    // Other elements; then only other scales.
    for (const bool elements : {true, false}) {
      step(5 + elements);
      double_scales(&matrices[0]);
      meddle = [&] { elements ? matrices[0].step(99, 5000) : double_scales(&matrices[0]); };
      const auto failed = publisher.publish(views());
      EXPECT_FALSE(meddle);
      EXPECT_EQ(failed.status().code(), Code::kIo) << failed.status().to_string();
      EXPECT_TRUE(mentions(failed.status(), "changed while it was read"));
      const auto again = publisher.publish(views());
      ASSERT_TRUE(again.ok()) << again.status().to_string();
      expect_held(again->version);
    }
  }
}

}  // namespace
}  // namespace deltawire::cuda
