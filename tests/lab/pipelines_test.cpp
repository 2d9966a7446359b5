// Every pipeline turns the old weights into the new ones, and the peers' payloads have their sizes.
#include <gtest/gtest.h>

#include "lab/bench/pipeline.h"
#include "lab/bench_tensors.h"

namespace deltawire::cli {
namespace {

const Pipeline& named(const Pipelines& all, std::string_view name) {
  for (const auto& one : all) {
    if (one->name() == name) return *one;
  }
  throw std::invalid_argument(std::string(name));
}

void expect_round_trip(const Pipeline& pipeline, uint8_t width, size_t n, unsigned one_in) {
  Scratch scratch;
  const auto data = random_tensor(width, n, one_in);
  const std::string what = pipeline.name() + " width " + std::to_string(width) + " n " +
                           std::to_string(n) + " one in " + std::to_string(one_in);
  Wire wire;
  ASSERT_TRUE(pipeline.publish(data.tensor, {nullptr, &scratch}, &wire).ok()) << what;
  ASSERT_EQ(wire.changed, data.before != data.after) << what;
  if (wire.changed) {
    ASSERT_TRUE(pipeline.apply(data.tensor, wire, {nullptr, &scratch}).ok()) << what;
  } else {
    ASSERT_TRUE(wire.payload.empty()) << what;
  }
  ASSERT_EQ(data.work, data.after) << what;
}

TEST(Pipelines, RoundTrip) {
  for (const auto& pipeline : all_pipelines()) {
    for (const uint8_t width : {1, 2, 4, 8}) {
      for (const size_t n : {0, 1, 3, 1001, 20'000}) {
        for (const unsigned one_in : {0, 1, 80}) expect_round_trip(*pipeline, width, n, one_in);
      }
    }
    expect_round_trip(*pipeline, 2, 300'000, 100'000);  // gaps of more than 16 bits
  }
}

size_t payload_bytes(std::string_view name, const TensorInMemory& data) {
  const Pipelines all = all_pipelines();
  Scratch scratch;
  Wire wire;
  EXPECT_TRUE(named(all, name).publish(data.tensor, {nullptr, &scratch}, &wire).ok());
  return wire.payload.size();
}

TEST(Pipelines, PeerPayloadsHaveTheirSizes) {
  std::vector<uint16_t> before(200'000, 0x3f80), after = before;
  for (const size_t i : {5, 6, 7, 60'000}) after[i] ^= 1;
  const auto near = tensor_of<uint16_t>({2, 7, 0xff}, before, after);
  EXPECT_EQ(payload_bytes("trl-v1", near), 4U * (4 + 2));
}

TEST(Pipelines, DigestsDetectAWrongBase) {
  Scratch scratch;
  const Pipelines all = all_pipelines();
  for (const char* name : {kSlimeName, kDigestedTightName}) {
    auto data = random_tensor(2, 10'000, 80);
    Wire wire;
    ASSERT_TRUE(named(all, name).publish(data.tensor, {nullptr, &scratch}, &wire).ok());
    data.tensor.work[1] ^= 1;  // no bit of the key: the codec itself cannot notice
    const Status status = named(all, name).apply(data.tensor, wire, {nullptr, &scratch});
    EXPECT_EQ(status.code(), Code::kCorruption) << name;
  }
}

}  // namespace
}  // namespace deltawire::cli
