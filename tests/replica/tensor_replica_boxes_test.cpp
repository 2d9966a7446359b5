// Replicas whose arrays are boxes of tensors: each holds its part of a version, bit for bit.

#include "replica/boxed_tensors.h"
#include "replica/limits.h"
#include "support/live_model.h"

namespace deltawire::testing {
namespace {

// How a model is sharded: returns the held boxes of a tensor; an empty list means all of it.
using Cut = std::function<std::vector<Box>(const TestTensor&)>;

Cut rows(uint64_t part, uint64_t of) {
  return [=](const TestTensor& tensor) -> std::vector<Box> {
    if (tensor.shape.size() != 2) return {};
    const uint64_t n = tensor.shape[0], begin = n * part / of, end = n * (part + 1) / of;
    return {{{begin, 0}, {end - begin, tensor.shape[1]}}};
  };
}

Cut columns(uint64_t part, uint64_t of) {
  return [=](const TestTensor& tensor) -> std::vector<Box> {
    if (tensor.shape.size() != 2) return {};
    const uint64_t n = tensor.shape[1], begin = n * part / of, end = n * (part + 1) / of;
    return {{{0, begin}, {tensor.shape[0], end - begin}}};
  };
}

// The four quarters of every matrix, each an array of its own.
std::vector<Box> quarters(const TestTensor& tensor) {
  if (tensor.shape.size() != 2) return {};
  const uint64_t r = tensor.shape[0], c = tensor.shape[1], y = r / 3, x = c / 3;
  return {{{0, 0}, {y, x}}, {{0, x}, {y, c - x}}, {{y, 0}, {r - y, x}}, {{y, x}, {r - y, c - x}}};
}

class BoxMemory {
 public:
  BoxMemory(const Model& like, const Cut& cut, uint8_t fill = 0) {
    for (const TestTensor& tensor : like.tensors) {
      std::vector<Box> boxes = cut(tensor);
      if (boxes.empty()) boxes.emplace_back();
      for (const Box& box : boxes) {
        bytes_.emplace_back(tensor_size_bytes(tensor.dtype, box_shape(box, tensor.shape)).value(),
                            fill);
        tensors.push_back(
            {tensor.name, tensor.dtype, tensor.shape, bytes_.back(), Memory::kHost, box});
      }
    }
  }
  bool is(const Model& model) const {
    return std::all_of(tensors.begin(), tensors.end(), [&](const LiveTensor& own) {
      const std::vector<uint8_t> expected = box_of(model, own);
      return std::equal(own.bytes.begin(), own.bytes.end(), expected.begin(), expected.end());
    });
  }
  void become(const Model& model) {
    for (const LiveTensor& own : tensors) {
      const std::vector<uint8_t> contents = box_of(model, own);
      std::copy(contents.begin(), contents.end(), own.bytes.begin());
    }
  }
  std::vector<std::vector<uint8_t>> copy() const { return {bytes_.begin(), bytes_.end()}; }
  std::vector<uint8_t>& bytes(size_t i) { return bytes_[i]; }

  std::vector<LiveTensor> tensors;

 private:
  using Memory = ::deltawire::Memory;

  static std::vector<uint8_t> box_of(const Model& model, const LiveTensor& own) {
    const TestTensor& whole =
        *std::find_if(model.tensors.begin(), model.tensors.end(),
                      [&](const TestTensor& tensor) { return tensor.name == own.name; });
    std::vector<uint8_t> contents(own.bytes.size());
    copy_box_out(own.box, whole.dtype, whole.shape, whole.bytes, contents);
    return contents;
  }

  std::deque<std::vector<uint8_t>> bytes_;
};

class TensorReplicaBoxesTest : public TensorReplicaTest {
 protected:
  Result<TensorReplica> open_boxes(BoxMemory* memory, const TensorReplicaOptions& how = options()) {
    return TensorReplica::open(store_, memory->tensors, how);
  }
};

TEST_F(TensorReplicaBoxesTest, EveryShardFollowsVersionByVersion) {
  std::deque<BoxMemory> memories;
  std::vector<TensorReplica> replicas;
  for (const Cut& cut : {rows(0, 2), rows(1, 2), columns(0, 3), columns(2, 3), Cut(quarters)}) {
    memories.emplace_back(model_, cut, 7);
    auto replica = must(open_boxes(&memories.back()));
    replicas.push_back(std::move(replica));
  }
  // Sparse, dense, full and tiny changes; the last pull spans two versions.
  for (const double density : {0.02, 0.3, 1.0, 0.0005, 0.02}) {
    for (size_t i = 0; i < replicas.size(); ++i) {
      const auto report = must(replicas[i].pull());
      EXPECT_FALSE(report.repaired) << report.repair_reason;
      EXPECT_EQ(replicas[i].version(), states_.size() - 1);
      EXPECT_TRUE(memories[i].is(model_)) << i;
    }
    step(density);
  }
  step();
  for (size_t i = 0; i < replicas.size(); ++i) {
    EXPECT_EQ(must(replicas[i].pull()).num_hops, 2);
    EXPECT_TRUE(memories[i].is(model_)) << i;
  }
}

TEST_F(TensorReplicaBoxesTest, PrepareWritesNothing) {
  BoxMemory memory(model_, columns(1, 2));
  auto replica = open_boxes(&memory);
  ASSERT_TRUE(replica->pull().ok());
  for (int i = 0; i < 3; ++i) {
    step();
    const Model before = states_[states_.size() - 2];
    ASSERT_TRUE(replica->prepare().ok());
    ASSERT_TRUE(replica->prepare().ok());  // again: what was ready is made ready anew
    EXPECT_TRUE(memory.is(before));
    EXPECT_EQ(replica->version(), states_.size() - 2);
    must(replica->commit());
    EXPECT_TRUE(memory.is(model_));
  }
}

TEST_F(TensorReplicaBoxesTest, DetectsAndReloadsWrongBytes) {
  BoxMemory memory(model_, columns(1, 2));
  auto replica = open_boxes(&memory);
  ASSERT_TRUE(replica->pull().ok());
  step();
  memory.bytes(0)[5] ^= 4;
  const auto report = must(replica->pull());
  EXPECT_TRUE(report.repaired);
  EXPECT_TRUE(contains(report.repair_reason, "tensor \"embed\", box 0,32+200,32"));
  EXPECT_TRUE(memory.is(model_));

  TensorReplicaOptions how = options();
  how.repair = false;
  BoxMemory other(model_, quarters);
  other.become(model_);
  auto strict = open_boxes(&other, how);
  ASSERT_TRUE(strict->pull().ok());
  step();
  other.bytes(2)[1] ^= 1;
  const auto before = other.copy();
  EXPECT_FAILS(strict->pull(), kBaseMismatch, "box 66,0+134,21");
  EXPECT_EQ(other.copy(), before);
}

TEST_F(TensorReplicaBoxesTest, EditsBetweenPrepareAndCommitAreNeverAVersion) {
  BoxMemory memory(model_, rows(1, 2));
  auto replica = open_boxes(&memory);
  expect_edits_are_never_called_a_version(&memory, &*replica);
}

TEST_F(TensorReplicaBoxesTest, RecognisesBoxesThatCoverTheirTensors) {
  step();
  step();
  BoxMemory memory(model_, quarters);
  memory.become(states_[1]);
  auto replica = open_boxes(&memory);
  const auto report = must(replica->pull());
  EXPECT_EQ(report.from, 1);
  EXPECT_EQ(report.num_hops, 1);
  EXPECT_TRUE(memory.is(model_));
  // A box that covers only a part does not prove the rest: a full version is loaded.
  BoxMemory part(model_, rows(0, 2));
  part.become(states_[1]);
  auto other = open_boxes(&part);
  EXPECT_FALSE(must(other->pull()).from.has_value());
  EXPECT_TRUE(part.is(model_));
}

TEST_F(TensorReplicaBoxesTest, IgnoresTensorsNotHeld) {
  const Cut cut = [](const TestTensor& tensor) -> std::vector<Box> {
    if (tensor.name == "layer.0.up") return {{{64, 0}, {0, 100}}};
    if (tensor.name == "norm") return {{{0}, {0}}};
    return {};
  };
  BoxMemory memory(model_, cut);
  TensorReplicaOptions how = options();
  how.verify_all = true;
  auto replica = must(open_boxes(&memory, how));
  for (int i = 0; i < 3; ++i) {
    must(replica.pull());
    EXPECT_TRUE(memory.is(model_));
    step();
  }
}

TEST_F(TensorReplicaBoxesTest, SkipsABadPartAndLoadsNewerTensors) {
  restart_with_anchors();
  BoxMemory memory(model_, columns(0, 2));
  auto replica = open_boxes(&memory);
  ASSERT_TRUE(replica->pull().ok());
  step();
  step();
  damage(part_of(1));
  EXPECT_TRUE(must(replica->pull()).repaired);
  EXPECT_TRUE(memory.is(model_));
  model_.tensors.push_back(make_tensor("adapter", DType::kBF16, {40, 64}, 7));
  publish();
  step();
  BoxMemory newer(model_, columns(0, 2));
  auto other = open_boxes(&newer);
  EXPECT_EQ(must(other->pull(3)).num_hops, 2);
  EXPECT_TRUE(newer.is(states_[3]));
  ASSERT_TRUE(other->pull().ok());
  EXPECT_TRUE(newer.is(model_));
}

TEST_F(TensorReplicaBoxesTest, RejectsInvalidBoxes) {
  const auto refused = [&](const std::function<void(LiveTensor*, LiveTensor*)>& change,
                           const std::string& message) {
    BoxMemory memory(model_, quarters);
    change(&memory.tensors[0], &memory.tensors[1]);
    EXPECT_FAILS(open_boxes(&memory), kInvalidArgument, message);
  };
  refused([](LiveTensor* a, LiveTensor*) { a->box.offset[0] = 190; }, "leaves dimension 0");
  refused([](LiveTensor* a, LiveTensor*) { a->bytes = a->bytes.first(8); }, "expected 2772 bytes");
  refused([](LiveTensor* a, LiveTensor* b) { *b = *a; }, "is given twice");
  refused([](LiveTensor* a, LiveTensor*) { a->box.offset[0] = 3; }, "overlaps tensor \"embed\"");
  refused([](LiveTensor* a, LiveTensor*) { a->shape[0] = 300; }, "given as BF16");
}

TEST_F(TensorReplicaBoxesTest, SpillsPendingChangesToFiles) {
  TensorReplicaOptions how = options();
  how.limits.memory_bytes = 4096;
  BoxMemory memory(model_, columns(1, 3));
  BoxMemory whole(model_, [](const TestTensor&) { return std::vector<Box>(); });
  auto replica = open_boxes(&memory, how);
  auto other = open_boxes(&whole, how);
  for (const double density : {0.02, 0.3, 1.0, 0.0005}) {
    for (TensorReplica* one : {&*replica, &*other}) {
      const auto report = must(one->pull());
      EXPECT_FALSE(report.repaired) << report.repair_reason;
    }
    EXPECT_TRUE(memory.is(model_));
    EXPECT_TRUE(whole.is(model_));
    step(density);
  }
}

TEST(SpillSpaceTest, SpillsToFilesBeyondTheLimit) {
  TempFolder folder;
  SpillSpace space(folder.path(), 1000);
  std::vector<std::pair<Bytes, std::vector<uint8_t>>> kept;
  for (size_t i = 0; i < 40; ++i) {
    const std::vector<uint8_t> bytes(100, uint8_t(i));
    kept.push_back({space.keep(bytes).value(), bytes});
  }
  const MutableBytes large = space.take(uint64_t{70} << 20).value();
  std::fill(large.begin(), large.end(), 0xee);
  EXPECT_EQ(space.in_memory(), 1000);
  EXPECT_EQ(space.in_files(), 3000 + (uint64_t{70} << 20));
  for (const auto& [own, bytes] : kept) {
    EXPECT_TRUE(std::equal(own.begin(), own.end(), bytes.begin(), bytes.end()));
  }
  space.clear();
  EXPECT_EQ(space.in_memory() + space.in_files(), 0);
  EXPECT_TRUE(fs::is_empty(folder.path()));
}

// For any box and entry, the cut entry changes the box as the whole entry changes the tensor.
TEST(BoxCutTest, MatchesTheWholeTensor) {
  const Shape shape = {6, 5, 8};
  const TestTensor before = make_tensor("t", DType::kBF16, shape, 1);
  const TensorView view{before.name, before.dtype, before.shape, before.bytes};
  const std::vector<Box> boxes = {{{0, 0, 0}, {6, 5, 8}}, {{2, 0, 0}, {3, 5, 8}},
                                  {{0, 1, 0}, {6, 3, 8}}, {{1, 1, 2}, {4, 2, 5}},
                                  {{5, 4, 7}, {1, 1, 1}}, {{0, 0, 3}, {6, 5, 1}}};
  for (const double density : {0.005, 0.1, 0.9}) {
    for (const uint64_t slab_bytes : {uint64_t{64}, uint64_t{200}, uint64_t{1} << 20}) {
      TestTensor after = before;
      change(&after, density, 5);
      std::vector<RedoEntry> entries;
      ASSERT_TRUE(make_redo_entries(view, after.bytes, slab_bytes, nullptr, [&](RedoEntry redo) {
                    entries.push_back(std::move(redo));
                    return Status();
                  }).ok());
      for (const Box& box : boxes) {
        std::vector<uint8_t> contents(tensor_size_bytes(DType::kBF16, box.extent).value());
        std::vector<uint8_t> expected(contents.size());
        copy_box_out(box, DType::kBF16, shape, before.bytes, contents);
        copy_box_out(box, DType::kBF16, shape, after.bytes, expected);
        for (const RedoEntry& redo : entries) {
          const auto cut = must(cut_to_box(redo, box));
          if (!cut) continue;
          const MutableBytes own = MutableBytes(contents).subspan(cut->begin, cut->size_bytes);
          ASSERT_TRUE(find_codec(cut->codec)->apply({2}, cut->payload, own, nullptr).ok());
        }
        EXPECT_EQ(contents, expected) << box_to_string(box) << " " << density << " " << slab_bytes;
      }
    }
  }
}

}  // namespace
}  // namespace deltawire::testing
