// What a host fetches of a version when its workers hold boxes, and that they can decode it.
#include "live/wanted.h"

#include <gtest/gtest.h>

#include <deque>

#include "base/json.h"
#include "live/spool.h"
#include "live/stage.h"
#include "replica/local_state.h"
#include "support/test_chain.h"
#include "tensor/box.h"

namespace deltawire::testing {
namespace {

// A worker of one rank: its boxes in memory of its own.
class Holder {
 public:
  // The shard of one of `ranks`: columns of down projections, rows of other matrices, whole
  // vectors.
  Holder(const State& state, unsigned rank, unsigned ranks) {
    for (const TestTensor& tensor : state) {
      Box box{Shape(tensor.shape.size(), 0), tensor.shape};
      if (tensor.shape.size() == 2) {
        const size_t cut = tensor.name.find("down_proj") != std::string::npos ? 1 : 0;
        box.extent[cut] /= ranks;
        box.offset[cut] = rank * box.extent[cut];
      }
      texts_.push_back(
          {tensor.name, dtype_name(tensor.dtype), tensor.shape, box.offset, box.extent});
      memory_.emplace_back(must(tensor_size_bytes(tensor.dtype, box.extent)));
      held_.push_back({{tensor.name, tensor.dtype, tensor.shape},
                       {{normalise_box(box, tensor.shape), memory_.back().data(), {}}}});
    }
    copy(state, &memory_);
  }

  std::string text() const { return json_text(texts_); }
  std::string digest() const { return digest_of(DigestKind::kSha256, as_bytes(text())).hex(); }

  // Decodes files against the held boxes and applies the result.
  void go_to(const std::vector<std::vector<PartFile>>& files, const State& state) {
    std::vector<Delta> deltas;
    for (const std::vector<PartFile>& parts : files)
      deltas.push_back(must(open_delta_parts(parts)));
    StagedDeltas staged = must(DeltaStager().stage(deltas, held_));
    EXPECT_TRUE(staged.undecoded.empty());
    must(staged.exchange.swap());
    std::deque<std::vector<uint8_t>> expected = memory_;
    copy(state, &expected);
    EXPECT_TRUE(memory_ == expected);
  }

 private:
  void copy(const State& state, std::deque<std::vector<uint8_t>>* to) const {
    for (size_t i = 0; i < held_.size(); ++i) {
      const auto tensor = std::find_if(state.begin(), state.end(), [&](const TestTensor& one) {
        return one.name == held_[i].name;
      });
      copy_box_out(held_[i].boxes[0].box, tensor->dtype, tensor->shape, tensor->bytes, (*to)[i]);
    }
  }

  nlohmann::json texts_ = nlohmann::json::array();
  std::deque<std::vector<uint8_t>> memory_;
  std::vector<HeldBoxes> held_;
};

class WantedTest : public ::testing::Test {
 protected:
  WantedTest() {
    tensors_ = {make_tensor("layers.0.mlp.down_proj.weight", DType::kBF16, {4096, 2048}, 1),
                make_tensor("layers.0.mlp.up_proj.weight", DType::kBF16, {2048, 4096}, 2),
                make_tensor("norm.weight", DType::kBF16, {2048}, 3)};
    chain_.publish_full(tensors_);
  }

  void publish() {
    for (TestTensor& tensor : tensors_) change(&tensor, 0.012, ++seed_);
    chain_.publish_delta(tensors_, "tight");
  }
  uint64_t parts_bytes(uint64_t version) const {
    uint64_t bytes = 0;
    for (const PartRef& part : chain_.records[version].manifest.parts) bytes += part.size_bytes;
    return bytes;
  }
  Identity id(uint64_t version) const { return chain_.records[version].identity(); }
  WorkerLayouts layouts(const std::vector<const Holder*>& holders) const {
    WorkerLayouts all;
    for (const Holder* holder : holders) all[holder->digest()] = holder->text();
    return all;
  }
  Spool open() { return must(Spool::open(chain_.hooks, folder_.path(), {.gap = 0})); }
  auto deltas(uint64_t from, uint64_t to, const Holder& holder) const {
    return spooled_deltas(folder_.path(), id(from), id(to), holder.digest());
  }

  TempFolder folder_;
  TestChain chain_;
  State tensors_;
  uint64_t seed_ = 3;
};

TEST_F(WantedTest, QuarterOfTheModelTakesAQuarterOfTheBytes) {
  Holder one(tensors_, 1, 4);
  Spool spool = open();
  must(spool.want(layouts({&one})));
  must(spool.fetch_new(0, 0));
  uint64_t bytes = 0;
  for (uint64_t version = 1; version <= 2; ++version) {
    publish();
    EXPECT_EQ(must(spool.fetch_new(0, 0)), id(version));
    one.go_to(must(deltas(version - 1, version, one)), tensors_);
    bytes += parts_bytes(version);
  }
  EXPECT_LE(double(spool.fetched_bytes()), 0.27 * double(bytes));
  EXPECT_EQ(newest_spooled(folder_.path(), one.digest()), id(2));
  EXPECT_EQ(newest_spooled(folder_.path()), id(0)) << "for a worker that holds all";
  EXPECT_FAILS(spooled_deltas(folder_.path(), id(0), id(2)), kNotFound, "other boxes");
}

TEST_F(WantedTest, LateWorkerFetchesOnlyTheRest) {
  Holder one(tensors_, 0, 2), other(tensors_, 1, 2);
  publish();
  publish();
  Spool spool = open();
  must(spool.want(layouts({&one})));
  must(spool.fetch_new(0, 0));
  EXPECT_EQ(newest_spooled(folder_.path(), other.digest()), id(0));
  const auto files = must(deltas(0, 2, one));
  std::vector<Delta> opened;
  for (const auto& parts : files) opened.push_back(must(open_delta_parts(parts)));

  must(spool.want(layouts({&one, &other})));
  must(spool.fetch_new(0, 0));
  EXPECT_EQ(newest_spooled(folder_.path(), other.digest()), id(2));
  other.go_to(must(deltas(0, 2, other)), tensors_);
  one.go_to(files, tensors_);
  for (const Delta& delta : opened) must(delta.check_unchanged());
  EXPECT_LE(double(spool.fetched_bytes()), 1.05 * double(parts_bytes(1) + parts_bytes(2)));

  // A worker with the same boxes as an earlier one needs nothing more.
  const uint64_t before = spool.fetched_bytes();
  must(spool.want(layouts({&other})));
  must(spool.fetch_new(0, 0));
  EXPECT_EQ(spool.fetched_bytes(), before);
  // A worker that needs whole parts gets them from the next version on.
  must(spool.want({}));
  publish();
  must(spool.fetch_new(0, 0));
  EXPECT_EQ(spool.fetched_bytes(), before);
  EXPECT_EQ(must(spooled_deltas(folder_.path(), id(2), id(3))).size(), 1U);
  must(deltas(2, 3, one));
}

TEST_F(WantedTest, DoesNotStoreDamagedObjects) {
  Holder one(tensors_, 3, 4);
  publish();
  const PartRef first = chain_.records[1].manifest.parts[0];
  publish();
  const PartRef second = chain_.records[2].manifest.parts[0];
  Spool spool = open();
  must(spool.want(layouts({&one})));
  std::string good = must(chain_.memory->get(second.name, second.size_bytes));
  std::string bad = good;
  bad[100] ^= 1;  // of its header
  must(chain_.memory->put(second.name, MemoryBody(bad)));
  EXPECT_EQ(spool.fetch_new(0, 0).status().code(), Code::kCorruption);
  EXPECT_EQ(newest_spooled(folder_.path(), one.digest()), id(1));
  // Another version's part under this name, truncated or padded.
  std::string other = must(chain_.memory->get(first.name, first.size_bytes));
  other.resize(second.size_bytes);
  must(chain_.memory->put(second.name, MemoryBody(other)));
  EXPECT_EQ(spool.fetch_new(0, 0).status().code(), Code::kCorruption);
  must(chain_.memory->put(second.name, MemoryBody(good.substr(0, good.size() / 2))));
  EXPECT_EQ(spool.fetch_new(0, 0).status().code(), Code::kCorruption);
  must(chain_.memory->put(second.name, MemoryBody(good)));
  EXPECT_EQ(must(spool.fetch_new(0, 0)), id(2));
  one.go_to(must(deltas(0, 2, one)), tensors_);
  for (const char* text :
       {"{}", "[[]]", R"([["w", "BF16", [4], [0]]])", R"([["w", "X", [4], [0], [4]]])",
        R"([["w", "BF16", [-4], [0], [4]]])"}) {
    EXPECT_FAILS(spool.want(WorkerLayouts{{"x", text}}), kCorruption, "expected a list");
  }
  EXPECT_FAILS(spool.want(WorkerLayouts{{"x", R"([["w", "BF16", [4], [3], [2]]])"}}), kCorruption,
               "tensor \"w\"");
}

TEST_F(WantedTest, RetriesAfterAFailedRead) {
  Holder one(tensors_, 0, 4);
  publish();
  Spool spool = open();
  must(spool.want(layouts({&one})));
  std::atomic<int> calls{0};
  chain_.hooks->before = [&](std::string_view call, std::string_view name) -> Status {
    if (call != "read" || !name.starts_with("parts/") || ++calls < 3) return {};
    return Status(Code::kUnavailable, "gone");
  };
  EXPECT_EQ(spool.fetch_new(0, 0).status().code(), Code::kUnavailable);
  EXPECT_EQ(newest_spooled(folder_.path(), one.digest()), id(0));
  chain_.hooks->before = nullptr;
  must(spool.fetch_new(0, 0));
  one.go_to(must(deltas(0, 1, one)), tensors_);
}

}  // namespace
}  // namespace deltawire::testing
