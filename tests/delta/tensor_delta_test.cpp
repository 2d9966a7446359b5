// Deltas between states in memory equal those between files; digests of patched arrays; parts as
// in a chain: no index and no target, since the manifest has both.
#include "checkpoints.h"
#include "codec/codec.h"
#include "codec/gaps.h"
#include "delta/apply_plan.h"
#include "delta/delta_reader.h"
#include "deltawire/delta.h"
#include "digest/parallel.h"
#include "format/layout.h"
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

TensorDelta diffed(const State& before, const State& after, const DiffOptions& options = {}) {
  return must(TensorDelta::diff(views(before), views(after), options));
}

Digest state_of(const State& state) {
  std::vector<TensorState> states;
  for (const TestTensor& tensor : state) {
    states.push_back(
        {tensor.name, tensor.dtype, tensor.shape, digest_of(DigestKind::kSum128, tensor.bytes)});
  }
  return state_digest(std::move(states));
}

TEST(TensorDelta, AppliesOldToNew) {
  const State before = model(1), after = stepped(before);
  for (const unsigned threads : {1u, 3u}) {
    const TensorDelta delta = diffed(before, after, {.threads = threads});
    ASSERT_EQ(delta.entries().size(), 2u);
    EXPECT_EQ(delta.entries()[0].tensor, "a");
    EXPECT_EQ(delta.entries()[1].num_elements, 60000u);
    EXPECT_EQ(delta.base(), state_of(before));
    EXPECT_EQ(delta.target(), state_of(after));
    State state = before;
    const auto report = must(delta.apply(host(&state), {threads, {}}));
    EXPECT_EQ(state, after);
    EXPECT_EQ(report.num_tensors, 4u);
    EXPECT_EQ(report.num_patched, 2u);
    EXPECT_EQ(report.target, state_of(after));
  }
}

TEST(TensorDelta, EqualsTheDeltaOfTheFiles) {
  const TempFolder folder;
  const State before = model(1), after = stepped(before);
  write_checkpoint(folder.path() / "old.safetensors", before);
  write_checkpoint(folder.path() / "new.safetensors", after);
  must(diff_checkpoints(folder.path() / "old.safetensors", folder.path() / "new.safetensors",
                        folder.path() / "a.safetensors", {}));
  ASSERT_TRUE(diffed(before, after).save(folder.path() / "b.safetensors", {}).ok());
  EXPECT_EQ(read_file(folder.path() / "a.safetensors"), read_file(folder.path() / "b.safetensors"));
}

TEST(TensorDelta, RoundTripsThroughFiles) {
  const TempFolder folder;
  const State before = model(1), after = stepped(before);
  ASSERT_TRUE(diffed(before, after).save(folder.path() / "parts", {.part_bytes = 500}).ok());
  const auto delta = must(TensorDelta::open(folder.path() / "parts"));
  State state = before;
  ASSERT_TRUE(delta.apply(host(&state), {}).ok());
  EXPECT_EQ(state, after);
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
  must(TensorDelta::open(path)->apply(host(&state), {}));
  EXPECT_EQ(state, after);
}

TEST(TensorDelta, RefusesAnotherBaseBeforeWriting) {
  const State before = model(1), after = stepped(before);
  const TensorDelta delta = diffed(before, after);
  for (const size_t touched : {0, 1, 3}) {  // patched as pairs, as a whole, and left alone
    State other = before;
    other[touched].bytes[5] ^= 1;
    const State kept = other;
    EXPECT_FAILS(delta.apply(host(&other), {}), kBaseMismatch);
    EXPECT_EQ(other, kept);
  }
  State fewer = before;
  fewer.pop_back();
  EXPECT_FAILS(delta.apply(host(&fewer), {}), kBaseMismatch);
}

TEST(TensorDelta, WritesNothingWhenCancelled) {
  const State before = model(1), after = stepped(before);
  const TensorDelta delta = diffed(before, after);
  for (const int stop : {1, 2}) {  // while the base is checked, while changes are decoded
    int asked = 0;
    State state = before;
    const Progress progress = [&](uint64_t, uint64_t) { return ++asked < stop; };
    EXPECT_FAILS(delta.apply(host(&state), {1, progress}), kCancelled);
    EXPECT_EQ(asked, stop);
    EXPECT_EQ(state, before);
  }
}

TEST(TensorDelta, ListsAddedAndRemovedTensorsWithoutCreatingThem) {
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
    EXPECT_EQ(state, more);
  }
}

TEST(TensorDelta, RejectsInvalidStates) {
  State twice = model(1);
  twice.push_back(twice[0]);
  EXPECT_FAILS(TensorDelta::diff(views(twice), {}, {}), kInvalidArgument,
               "tensor \"b\": is given twice");
  State cut = model(1);
  cut[1].bytes.pop_back();
  EXPECT_FAILS(TensorDelta::diff({}, views(cut), {}), kInvalidArgument,
               "tensor \"a\": expected 4000 bytes, got 3999");
}

TEST(PatchedDigestTest, EqualsTheDigestOfThePatchedArray) {
  for (const uint64_t elements : {1U, 7U, 32767U, 32768U, 32769U, 100000U}) {
    for (const double density : {0.0001, 0.01, 0.9}) {
      TestTensor tensor = make_tensor("t", DType::kBF16, {elements}, elements);
      const std::vector<uint8_t> before = tensor.bytes;
      change(&tensor, density, 5);
      const Layout layout = layout_of(DType::kBF16);
      const Codec& codec = *find_codec("tight");
      const auto encoded = must(codec.encode(layout, before, tensor.bytes, nullptr));
      const auto changes = codec.decode(layout, encoded.payload, before, nullptr);
      ASSERT_TRUE(changes.ok()) << changes.status().to_string();
      EXPECT_EQ(digests_around(sums_of(before, 0, nullptr), 2, before,
                               {changes->positions, changes->values}, nullptr)
                    .after,
                digest_of(DigestKind::kSum128, tensor.bytes))
          << elements << " " << density;
      // The same changes in a payload of their own.
      std::vector<uint8_t> patched = before;
      const std::vector<uint8_t> payload = gaps_payload(2, changes->positions, changes->values);
      ASSERT_TRUE(find_codec("gaps")->apply(layout, payload, patched, nullptr).ok());
      EXPECT_EQ(patched, tensor.bytes);
    }
  }
}

TEST(PatchedDigestTest, ChoosesTheGapWidth) {
  for (const uint64_t gap : {uint64_t{0xffff}, uint64_t{0x10000}}) {
    const std::vector<uint64_t> positions = {3, 4 + gap};
    const std::vector<uint8_t> values = {1, 2};
    const std::vector<uint8_t> payload = gaps_payload(1, positions, values);
    EXPECT_EQ(payload[0], gap == 0xffff ? 2 : 4);
    std::vector<uint8_t> array(5 + gap);
    ASSERT_TRUE(find_codec("gaps")->apply({1, 0, 0xff}, payload, array, nullptr).ok());
    EXPECT_EQ(array[3], 1);
    EXPECT_EQ(array[4 + gap], 2);
  }
  EXPECT_TRUE(gaps_payload(2, {}, {}).empty());
}

class VersionPartsTest : public ::testing::Test {
 protected:
  VersionPartsTest() {
    for (const char* name : {"a", "b"}) {
      before_.push_back(make_tensor(name, DType::kBF16, {300}, before_.size()));
      after_.push_back(before_.back());
      change(&after_.back(), 0.2, 7);
    }
  }

  std::filesystem::path at(const std::string& name) const { return folder_.path() / name; }

  void write(size_t tensor, const std::string& name, const Digest& base) const {
    const TestTensor &before = before_[tensor], &after = after_[tensor];
    must(write_part(at(name),
                    {{before.name, before.dtype, before.shape, {}, before.bytes, after.bytes}},
                    base, Digest{}, {}));
  }

  TempFolder folder_;
  std::vector<TestTensor> before_, after_;
};

TEST_F(VersionPartsTest, HaveNoTarget) {
  write(0, "0.safetensors", state_of(before_));
  write(1, "1.safetensors", state_of(before_));
  const auto delta =
      must(open_delta_parts({{at("1.safetensors"), "parts/1"}, {at("0.safetensors"), "parts/0"}}));
  EXPECT_FALSE(delta.info.has_target());
  ASSERT_EQ(delta.entries.size(), 2);
  EXPECT_EQ(delta.entries[0].place, "parts/0, tensor \"a\"");
  EXPECT_EQ(delta.entries[1].place, "parts/1, tensor \"b\"");
}

TEST_F(VersionPartsTest, RejectPartsOfDifferentBases) {
  write(0, "0.safetensors", state_of(before_));
  write(1, "1.safetensors", digest_of(DigestKind::kXxh3_128, {}));
  EXPECT_FAILS(
      open_delta_parts({{at("0.safetensors"), "parts/0"}, {at("1.safetensors"), "parts/1"}}),
      kCorruption, "parts/1", "another delta");
}

TEST_F(VersionPartsTest, RejectATensorCoveredTwice) {
  write(0, "0.safetensors", state_of(before_));
  EXPECT_FAILS(
      open_delta_parts({{at("0.safetensors"), "parts/0"}, {at("0.safetensors"), "parts/1"}}),
      kCorruption, "covers too");
}

// A single part is a valid delta: its result is verified tensor by tensor.
TEST_F(VersionPartsTest, OnePartCanBeApplied) {
  after_[1] = before_[1];
  write_checkpoint(at("old.safetensors"), before_);
  write_checkpoint(at("new.safetensors"), after_);
  write(0, "0.safetensors", state_of(before_));
  must(apply_delta(at("0.safetensors"), at("old.safetensors"), at("out.safetensors"), {}));
  EXPECT_EQ(read_file(at("out.safetensors")), read_file(at("new.safetensors")));
}

TEST_F(VersionPartsTest, NoPartsGiveAnEmptyDelta) {
  const auto delta = must(open_delta_parts({}));
  EXPECT_TRUE(delta.entries.empty());
}

}  // namespace
}  // namespace deltawire::testing
