// FP8 blocks on the GPU: the CPU's bits for any weights and any division into blocks.
#include "kernels/cuda/fp8_block.h"

#include "cuda/device_arrays.h"
#include "digest/sums.h"

namespace deltawire::cuda {
namespace {

class Fp8BlockTest : public ::testing::Test {
 protected:
  void SetUp() override { SKIP_WITHOUT_GPU(); }
};

enum class Kind { kOrdinary, kZero, kDenormal, kHuge, kNoise, kNan };

struct Case {
  fp8::Matrix matrix;  // its weights are on the device
  std::vector<uint8_t> weights, before, expected;
  std::vector<float> scales;
  uint64_t unbounded_rows = 0;
  OnDevice there, old_there;

  Case(Random& random, Kind kind, WideFloat from, uint64_t rows, uint64_t columns,
       uint64_t block_rows, uint64_t block_columns, bool power_of_two, size_t skew)
      : matrix{nullptr, from, rows, columns, block_rows, block_columns, power_of_two} {
    weights.resize(rows * columns * matrix.width());
    for (uint64_t i = 0; i < rows * columns; ++i) {
      uint32_t bits = uint32_t(random());
      if (kind == Kind::kOrdinary || kind == Kind::kNan) {
        bits = uint32_t(make_value(random, 4, Content::kWeights));
      }
      if (kind == Kind::kZero) bits &= 0x80000000U;
      if (kind == Kind::kDenormal) bits &= 0x807fffffU;
      if (kind == Kind::kHuge) bits = (bits & 0x807fffffU) | 0x7e800000U;
      if (kind == Kind::kNoise && (bits & 0x7f000000U) == 0x7f000000U) bits ^= 0x40000000U;
      if (kind == Kind::kNan && random() % 5000 == 0)
        bits = random() % 2 == 0 ? 0x7fc00000U : 0xff800000U;
      if (matrix.width() == 2) bits >>= 16;
      std::memcpy(weights.data() + i * matrix.width(), &bits, matrix.width());
    }
    fp8::Matrix here = matrix;
    here.weights = weights.data();
    scales.resize(matrix.rows_of_blocks() * matrix.columns_of_blocks());
    for (uint64_t i = 0; i < matrix.rows_of_blocks(); ++i) {
      unbounded_rows += !fp8::scales(here, i, scales.data() + i * matrix.columns_of_blocks());
    }
    expected.resize(rows * columns);
    fp8::elements(here, scales.data(), 0, expected);
    before = expected;
    for (uint8_t& byte : before) {
      if (random() % 50 == 0) byte = uint8_t(random());
    }
    there = OnDevice(weights, skew * matrix.width());
    old_there = OnDevice(before, skew);
    matrix.weights = there.data();
  }
};

void expect_same(const std::vector<const Case*>& cases) {
  std::vector<Fp8Job> jobs;
  std::vector<OnDevice> scales, masks, elements;
  for (const Case* one : cases) {
    Fp8Job job;
    job.matrix = one->matrix;
    scales.emplace_back(std::vector<uint8_t>(one->scales.size() * 4));
    masks.emplace_back(std::vector<uint8_t>(one->matrix.rows * job.mask_words() * 4, 0xa5));
    elements.emplace_back(std::vector<uint8_t>(one->expected.size()));
    job.scales = reinterpret_cast<float*>(scales.back().data());
    job.before = one->old_there.data();
    job.changed = reinterpret_cast<uint32_t*>(masks.back().data());
    job.elements = elements.back().data();
    jobs.push_back(job);
  }
  const Buffer room = good(Buffer::allocate(Place::kDevice, fp8_job_bytes(jobs)));
  const OnDevice found(std::vector<uint8_t>(jobs.size() * sizeof(Fp8Found)));
  ASSERT_GOOD(fp8_blocks(jobs, room.data(), reinterpret_cast<Fp8Found*>(found.data()), nullptr));
  const std::vector<uint8_t> totals = found.fetch();
  for (size_t n = 0; n < cases.size(); ++n) {
    const Case& one = *cases[n];
    Fp8Found total;
    std::memcpy(&total, totals.data() + n * sizeof total, sizeof total);
    ASSERT_EQ(total.unbounded != 0, one.unbounded_rows != 0) << "case " << n;
    if (total.unbounded != 0) continue;  // nothing else is promised
    const std::vector<uint8_t> got_scales = scales[n].fetch(), mask = masks[n].fetch();
    ASSERT_EQ(std::memcmp(got_scales.data(), one.scales.data(), got_scales.size()), 0) << n;
    ASSERT_EQ(elements[n].fetch(), one.expected) << "case " << n;
    uint64_t changed = 0;
    const uint64_t columns = one.matrix.columns, row_bytes = jobs[n].mask_words() * 4;
    for (uint64_t i = 0; i < one.expected.size(); ++i) {
      const bool differs = one.expected[i] != one.before[i];
      const uint64_t column = i % columns;
      const bool said = (mask[i / columns * row_bytes + column / 8] >> (column % 8) & 1) != 0;
      ASSERT_EQ(said, differs) << "case " << n << ", element " << i;
      changed += differs;
    }
    ASSERT_EQ(total.changed, changed) << "case " << n;
  }
}

// Digests of elements that are never written.
void expect_sums(const std::vector<const Case*>& cases) {
  std::vector<Fp8Job> jobs;
  std::vector<OnDevice> scales;
  std::vector<const Case*> summed;
  for (const Case* one : cases) {
    if (!one->matrix.has_whole_words() || one->unbounded_rows != 0) continue;
    Fp8Job job;
    job.matrix = one->matrix;
    scales.emplace_back(std::vector<uint8_t>(one->scales.size() * 4));
    job.scales = reinterpret_cast<float*>(scales.back().data());
    jobs.push_back(job);
    summed.push_back(one);
  }
  ASSERT_FALSE(jobs.empty());
  const Buffer room = good(Buffer::allocate(Place::kDevice, fp8_job_bytes(jobs)));
  const OnDevice found(std::vector<uint8_t>(jobs.size() * sizeof(Fp8Found)));
  ASSERT_GOOD(
      fp8_blocks(jobs, room.data(), reinterpret_cast<Fp8Found*>(found.data()), nullptr, true));
  const std::vector<uint8_t> totals = found.fetch();
  for (size_t n = 0; n < summed.size(); ++n) {
    const std::vector<uint8_t>& expected = summed[n]->expected;
    Fp8Found total;
    std::memcpy(&total, totals.data() + n * sizeof total, sizeof total);
    ASSERT_EQ(finish_sums({total.sums[0], total.sums[1]}, expected.size()),
              digest_of(DigestKind::kSum128, expected))
        << "case " << n << ", " << summed[n]->matrix.rows << " x " << summed[n]->matrix.columns;
  }
}

TEST_F(Fp8BlockTest, EqualsTheCpu) {
  Random random(11);
  const uint64_t shapes[][2] = {{128, 128}, {256, 384},  {1, 1},   {130, 257},
                                {127, 136}, {384, 1000}, {5, 4096}};
  const uint64_t blocks[][2] = {{128, 128}, {64, 32}, {1, 128}, {16, 7}};
  for (const WideFloat from : {WideFloat::kBf16, WideFloat::kF32, WideFloat::kF32AsBf16}) {
    for (const bool power_of_two : {false, true}) {
      std::vector<Case> cases;
      cases.reserve(std::size(shapes) * std::size(blocks) * 6);
      for (const auto& shape : shapes) {
        for (const auto& block : blocks) {
          for (const Kind kind : {Kind::kOrdinary, Kind::kZero, Kind::kDenormal, Kind::kHuge,
                                  Kind::kNoise, Kind::kNan}) {
            cases.emplace_back(random, kind, from, shape[0], shape[1], block[0], block[1],
                               power_of_two, random() % 3);
          }
        }
      }
      std::vector<const Case*> all;
      for (const Case& one : cases) all.push_back(&one);
      expect_same(all);
      expect_sums(all);
    }
  }
}

// More blocks than a device processes at once: each part takes several, one after the other.
TEST_F(Fp8BlockTest, HandlesManyBlocks) {
  Random random(13);
  for (const WideFloat from : {WideFloat::kBf16, WideFloat::kF32, WideFloat::kF32AsBf16}) {
    const Case large(random, Kind::kOrdinary, from, 2048, 4096, 128, 128, false, 0);
    const Case ragged(random, Kind::kOrdinary, from, 2000, 4112, 128, 128, false, 0);
    expect_same({&large, &ragged, &large});
    expect_sums({&large, &ragged, &large});
  }
}

// Like a publisher after a commit: the snapshot is replaced by the new elements in place.
TEST_F(Fp8BlockTest, WritesInPlace) {
  Random random(12);
  const Case one(random, Kind::kOrdinary, WideFloat::kBf16, 300, 520, 128, 128, false, 0);
  const OnDevice scales(std::vector<uint8_t>(one.scales.size() * 4));
  Fp8Job job;
  job.matrix = one.matrix;
  const OnDevice masks(std::vector<uint8_t>(one.matrix.rows * job.mask_words() * 4));
  job.scales = reinterpret_cast<float*>(scales.data());
  job.before = job.elements = one.old_there.data();
  job.changed = reinterpret_cast<uint32_t*>(masks.data());
  const Buffer room = good(Buffer::allocate(Place::kDevice, fp8_job_bytes({&job, 1})));
  for (const bool again : {false, true}) {
    const OnDevice found(std::vector<uint8_t>(sizeof(Fp8Found)));
    ASSERT_GOOD(
        fp8_blocks({&job, 1}, room.data(), reinterpret_cast<Fp8Found*>(found.data()), nullptr));
    Fp8Found total;
    std::memcpy(&total, found.fetch().data(), sizeof total);
    ASSERT_EQ(total.changed == 0, again);
    ASSERT_EQ(one.old_there.fetch(), one.expected);
  }
}

}  // namespace
}  // namespace deltawire::cuda
