// Deltas between states in memory: what is made, kept and applied is what files would give.
#include "deltawire/delta.h"

#include <gtest/gtest.h>

#include "checkpoints.h"
#include "format/state_digest.h"

namespace deltawire::testing {
namespace {

using State = std::vector<TestTensor>;

State model(uint64_t seed) {
  return {make_tensor("b", DType::kBF16, {300, 200}, seed),
          make_tensor("a", DType::kF32, {1000}, seed + 1),
          make_tensor("empty", DType::kF16, {0, 3}, 0),
          make_tensor("same", DType::kI64, {50}, seed + 2)};
}

State stepped(State state) {
  change(&state[0], 0.02, 7);  // few: as pairs
  change(&state[1], 0.9, 8);   // most: as a whole
  return state;
}

std::vector<TensorView> views(const State& state) {
  std::vector<TensorView> out;
  for (const TestTensor& tensor : state) {
    out.push_back({tensor.name, tensor.dtype, tensor.shape, tensor.bytes});
  }
  return out;
}

std::vector<LiveTensor> host(State* state) {
  std::vector<LiveTensor> out;
  for (TestTensor& tensor : *state) {
    out.push_back({tensor.name, tensor.dtype, tensor.shape, tensor.bytes});
  }
  return out;
}

bool same(const State& a, const State& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const TestTensor& x, const TestTensor& y) { return x.bytes == y.bytes; });
}

TensorDelta diffed(const State& before, const State& after, const DiffOptions& options = {}) {
  auto delta = TensorDelta::diff(views(before), views(after), options);
  EXPECT_TRUE(delta.ok()) << delta.status().to_string();
  return *delta;
}

Digest state_of(const State& state) {
  std::vector<TensorState> states;
  for (const TestTensor& tensor : state) {
    states.push_back(
        {tensor.name, tensor.dtype, tensor.shape, digest_of(DigestKind::kSum128, tensor.bytes)});
  }
  return state_digest(std::move(states));
}

TEST(TensorDelta, LeadsFromOldToNew) {
  const State before = model(1), after = stepped(before);
  for (const unsigned threads : {1u, 3u}) {
    DiffOptions options;
    options.threads = threads;
    const TensorDelta delta = diffed(before, after, options);
    ASSERT_EQ(delta.entries().size(), 2u);
    EXPECT_EQ(delta.entries()[0].tensor, "a");
    EXPECT_EQ(delta.entries()[1].num_elements, 60000u);
    EXPECT_EQ(delta.base(), state_of(before));
    EXPECT_EQ(delta.target(), state_of(after));
    State state = before;
    const auto report = delta.apply(host(&state), {threads, {}});
    ASSERT_TRUE(report.ok()) << report.status().to_string();
    EXPECT_TRUE(same(state, after));
    EXPECT_EQ(report->num_tensors, 4u);
    EXPECT_EQ(report->num_patched, 2u);
    EXPECT_EQ(report->target, state_of(after));
  }
}

TEST(TensorDelta, IsTheFileThatCheckpointsGive) {
  const TempFolder folder;
  const State before = model(1), after = stepped(before);
  write_checkpoint(folder.path() / "old.safetensors", before);
  write_checkpoint(folder.path() / "new.safetensors", after);
  ASSERT_TRUE(diff_checkpoints(folder.path() / "old.safetensors", folder.path() / "new.safetensors",
                               folder.path() / "a.safetensors", {})
                  .ok());
  ASSERT_TRUE(diffed(before, after).save(folder.path() / "b.safetensors", {}).ok());
  EXPECT_EQ(read_file(folder.path() / "a.safetensors"), read_file(folder.path() / "b.safetensors"));
}

TEST(TensorDelta, ComesBackFromDisk) {
  const TempFolder folder;
  const State before = model(1), after = stepped(before);
  DiffOptions options;
  options.part_bytes = 500;
  ASSERT_TRUE(diffed(before, after).save(folder.path() / "parts", options).ok());
  const auto delta = TensorDelta::open(folder.path() / "parts");
  ASSERT_TRUE(delta.ok()) << delta.status().to_string();
  State state = before;
  ASSERT_TRUE(delta->apply(host(&state), {}).ok());
  EXPECT_TRUE(same(state, after));
}

TEST(TensorDelta, AppliesBoxes) {
  const TempFolder folder;
  const State before{make_tensor("w", DType::kF32, {40, 30}, 1)};
  State after = before;
  change(&after[0], 0.05, 3);
  std::vector<std::vector<uint8_t>> pieces;
  std::vector<TensorChange> changes;
  for (const uint64_t column : {0, 10, 20}) {
    const Box box{{0, column}, {40, 10}};
    for (const TestTensor& tensor : {before[0], after[0]}) {
      pieces.emplace_back(40 * 10 * 4);
      copy_box_out(box, DType::kF32, {40, 30}, tensor.bytes, pieces.back());
    }
    changes.push_back({"w", DType::kF32, {40, 30}, box, {}, {}});
  }
  for (size_t i = 0; i < changes.size(); ++i) {
    changes[i].old_bytes = pieces[2 * i];
    changes[i].new_bytes = pieces[2 * i + 1];
  }
  const auto path = folder.path() / "part.safetensors";
  ASSERT_TRUE(write_part(path, changes, state_of(before), state_of(after), {}).ok());
  State state = before;
  const auto report = TensorDelta::open(path)->apply(host(&state), {});
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  EXPECT_TRUE(same(state, after));
}

TEST(TensorDelta, RefusesAnotherBaseAndWritesNothing) {
  const State before = model(1), after = stepped(before);
  const TensorDelta delta = diffed(before, after);
  for (const size_t touched : {0, 1, 3}) {  // patched as pairs, as a whole, and left alone
    State other = before;
    other[touched].bytes[5] ^= 1;
    const State kept = other;
    EXPECT_TRUE(is_failure(delta.apply(host(&other), {}).status(), Code::kBaseMismatch));
    EXPECT_TRUE(same(other, kept));
  }
  State fewer = before;
  fewer.pop_back();
  EXPECT_TRUE(is_failure(delta.apply(host(&fewer), {}).status(), Code::kBaseMismatch));
}

TEST(TensorDelta, WritesNothingWhenItIsCancelled) {
  const State before = model(1), after = stepped(before);
  const TensorDelta delta = diffed(before, after);
  for (const int stop : {1, 2}) {  // while the base is checked, while changes are decoded
    int asked = 0;
    State state = before;
    const Progress progress = [&](uint64_t, uint64_t) { return ++asked < stop; };
    EXPECT_TRUE(is_failure(delta.apply(host(&state), {1, progress}).status(), Code::kCancelled));
    EXPECT_EQ(asked, stop);
    EXPECT_TRUE(same(state, before));
  }
}

TEST(TensorDelta, CarriesTensorsThatComeAndGoButDoesNotMakeThem) {
  const State before = model(1);
  State more = before;
  more.push_back(make_tensor("z", DType::kU8, {9}, 4));
  const TensorDelta came = diffed(before, more), went = diffed(more, before);
  ASSERT_EQ(came.entries().size(), 1u);
  EXPECT_TRUE(came.entries()[0].whole);
  EXPECT_EQ(went.removed(), std::vector<std::string>{"z"});
  for (const TensorDelta* delta : {&came, &went}) {
    State state = more;
    EXPECT_TRUE(
        is_failure(delta->apply(host(&state), {}).status(), Code::kInvalidArgument, "\"z\""));
    EXPECT_TRUE(same(state, more));
  }
}

TEST(TensorDelta, RefusesStatesThatMakeNoSense) {
  State twice = model(1);
  twice.push_back(twice[0]);
  EXPECT_TRUE(is_failure(TensorDelta::diff(views(twice), {}, {}).status(), Code::kInvalidArgument,
                         "tensor \"b\": is given twice"));
  State cut = model(1);
  cut[1].bytes.pop_back();
  EXPECT_TRUE(is_failure(TensorDelta::diff({}, views(cut), {}).status(), Code::kInvalidArgument,
                         "tensor \"a\": expected 4000 bytes, got 3999"));
}

}  // namespace
}  // namespace deltawire::testing
