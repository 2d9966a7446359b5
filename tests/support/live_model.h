// A published model, and memory that replicas keep up to date.
#pragma once

#include <deque>

#include "deltawire/tensor_replica.h"
#include "support/hooked_store.h"
#include "support/published_model.h"

namespace deltawire::testing {

// A model in memory for a replica.
class Memory {
 public:
  explicit Memory(const Model& like, uint8_t fill = 0) {
    for (const TestTensor& tensor : like.tensors) {
      bytes_.emplace_back(tensor.bytes.size(), fill);
      tensors.push_back({tensor.name, tensor.dtype, tensor.shape, bytes_.back()});
    }
  }
  void become(const Model& model) {
    for (size_t i = 0; i < bytes_.size(); ++i) {
      std::copy(model.tensors[i].bytes.begin(), model.tensors[i].bytes.end(), bytes_[i].begin());
    }
  }
  bool is(const Model& model) const {
    for (size_t i = 0; i < bytes_.size(); ++i) {
      if (!std::equal(bytes_[i].begin(), bytes_[i].end(), model.tensors[i].bytes.begin(),
                      model.tensors[i].bytes.end())) {
        return false;
      }
    }
    return true;
  }
  std::vector<uint8_t>& bytes(size_t i) { return bytes_[i]; }
  std::vector<std::vector<uint8_t>> copy() const { return {bytes_.begin(), bytes_.end()}; }

  std::vector<LiveTensor> tensors;

 private:
  std::deque<std::vector<uint8_t>> bytes_;
};

class TensorReplicaTest : public ::testing::Test {
 protected:
  TensorReplicaTest() : store_(std::make_shared<HookedStore>()), model_(Model::make()) {
    PublishOptions options = with_schema_change();
    options.limits.threads = 2;
    publisher_.emplace(Publisher::open(store_, options).value());
    publish();
  }
  void publish() {
    must(publisher_->publish(model_.views()));
    states_.push_back(model_);
  }
  void step(double density = 0.02) {
    model_.step(density);
    publish();
  }
  static TensorReplicaOptions options() { return {.limits = {.threads = 2}, .heartbeat = false}; }
  Result<TensorReplica> open(Memory* memory, const TensorReplicaOptions& how = options()) {
    return TensorReplica::open(store_, memory->tensors, how);
  }
  // A replica that has pulled the newest version, and its memory.
  struct Pulled {
    Memory memory;
    TensorReplica replica;
  };
  Pulled pulled() {
    Memory memory(model_);
    TensorReplica replica = must(open(&memory));
    must(replica.pull());
    return {std::move(memory), std::move(replica)};
  }
  // Writes to `memory` between prepare() and commit().
  template <class Held>
  void expect_edits_are_never_called_a_version(Held* memory, TensorReplica* replica) {
    ASSERT_TRUE(replica->pull().ok());
    step();
    ASSERT_TRUE(replica->prepare().ok());
    for (uint8_t& byte : memory->bytes(1)) byte ^= 0xff;
    EXPECT_FAILS(replica->commit(), kBaseMismatch, "layer.0.up");
    EXPECT_FALSE(replica->version().has_value());
    EXPECT_FALSE(must(replica->pull()).from.has_value());
    EXPECT_TRUE(memory->is(model_));
  }
  // Flips a byte of an object.
  void damage(const std::string& name) { testing::damage(*store_, name, 3); }
  std::string part_of(uint64_t version) const {
    return Chain::open(store_, {})->version(version)->manifest.parts.back().name;
  }
  std::string last_part() const { return part_of(states_.size() - 1); }
  // A chain in which every second version has an anchor.
  void restart_with_anchors() {
    store_ = std::make_shared<HookedStore>();
    states_.clear();
    PublishOptions how = with_schema_change();
    how.limits.threads = 2;
    how.anchors = Anchors{.every = 2};
    publisher_.emplace(Publisher::open(store_, how).value());
    publish();
  }

  std::shared_ptr<HookedStore> store_;
  Model model_;
  std::optional<Publisher> publisher_;
  std::vector<Model> states_;  // by version
};

}  // namespace deltawire::testing
