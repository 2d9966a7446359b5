// Trainer and engine ranks of a small model, each with a thread of its own, over sockets.
#pragma once

#include "carrier/tcp/socket_carrier.h"
#include "shard/boxes.h"
#include "shard/shard.h"
#include "test_files.h"

namespace deltawire::testing {

// Models small enough to be looked at element by element, with the names of Hugging Face.
inline constexpr const char* kConfig =
    R"({"hidden_size": 16, "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 4})";

// Two layers, 8 heads of 4, 2 key and value heads, a vocabulary that few numbers divide.
inline std::vector<ShardTensor> dense_tensors(unsigned layers = 2) {
  const DType bf16 = DType::kBF16;
  std::vector<ShardTensor> tensors = {{"model.embed_tokens.weight", bf16, {37, 16}},
                                      {"lm_head.weight", bf16, {37, 16}},
                                      {"model.norm.weight", DType::kF32, {16}},
                                      {"scale", DType::kF64, {}}};
  for (unsigned layer = 0; layer < layers; ++layer) {
    const std::string at = "model.layers." + std::to_string(layer) + ".";
    tensors.push_back({at + "self_attn.q_proj.weight", bf16, {32, 16}});
    tensors.push_back({at + "self_attn.q_proj.bias", bf16, {32}});
    tensors.push_back({at + "self_attn.k_proj.weight", bf16, {8, 16}});
    tensors.push_back({at + "self_attn.v_proj.weight", bf16, {8, 16}});
    tensors.push_back({at + "self_attn.o_proj.weight", bf16, {16, 32}});
    tensors.push_back({at + "mlp.gate_proj.weight", bf16, {24, 16}});
    tensors.push_back({at + "mlp.up_proj.weight", bf16, {24, 16}});
    tensors.push_back({at + "mlp.down_proj.weight", bf16, {16, 24}});
    tensors.push_back({at + "input_layernorm.weight", bf16, {16}});
  }
  return tensors;
}

// Experts one by one in the first layer, in stacks in the second; fused projections in a third.
inline std::vector<ShardTensor> expert_tensors(unsigned experts = 8) {
  std::vector<ShardTensor> tensors = dense_tensors(1);
  const DType bf16 = DType::kBF16;
  for (unsigned expert = 0; expert < experts; ++expert) {
    const std::string at = "model.layers.0.mlp.experts." + std::to_string(expert) + ".";
    tensors.push_back({at + "gate_proj.weight", bf16, {8, 16}});
    tensors.push_back({at + "up_proj.weight", bf16, {8, 16}});
    tensors.push_back({at + "down_proj.weight", bf16, {16, 8}});
  }
  tensors.push_back({"model.layers.0.mlp.gate.weight", bf16, {experts, 16}});
  tensors.push_back({"model.layers.1.mlp.experts.gate_up_proj", bf16, {experts, 16, 24}});
  tensors.push_back({"model.layers.1.mlp.experts.down_proj", bf16, {experts, 12, 16}});
  tensors.push_back({"model.layers.2.self_attn.qkv_proj.weight", bf16, {48, 16}});
  tensors.push_back({"model.layers.2.mlp.gate_up_proj.weight", bf16, {24, 16}});
  return tensors;
}

inline ShardLayout layout_for(std::string_view spec, const std::vector<ShardTensor>& tensors) {
  return must(ShardLayout::of_spec(spec, tensors, kConfig));
}

// Bits of every kind: NaN payloads, zeros of both signs, infinities.
inline std::vector<uint8_t> random_bytes(size_t size, std::mt19937* random) {
  std::vector<uint8_t> bytes(size);
  for (uint8_t& byte : bytes) byte = uint8_t((*random)());
  for (size_t i = 0; i + 2 <= size; i += 16) {
    const uint16_t odd[] = {0x0000, 0x8000, 0x7f80, 0x7fc1, 0xffff, 0x0001};
    store_le<uint16_t>(bytes.data() + i, odd[(*random)() % std::size(odd)]);
  }
  return bytes;
}

// A whole model, and the boxes of it that a rank has.
using State = std::map<std::string, std::vector<uint8_t>>;

class Rank {
 public:
  Rank(const ShardLayout& layout, unsigned rank) {
    for (const ShardPiece& piece : layout.ranks[rank]) {
      const ShardTensor& tensor = layout.tensors[piece.tensor];
      const Shape shape = box_shape(piece.box, tensor.shape);
      memory_.emplace_back(tensor_size_bytes(tensor.dtype, shape).value());
      live_.push_back({tensor.name, tensor.dtype, tensor.shape, {}, Memory::kHost, piece.box});
    }
    for (size_t i = 0; i < live_.size(); ++i) live_[i].bytes = memory_[i];
  }

  Rank(Rank&&) = default;  // bytes stay where they are
  Rank& operator=(Rank&&) = default;

  std::span<const LiveTensor> live() const { return live_; }
  void set(const State& state) {
    for (const LiveTensor& piece : live_) {
      copy_box_out(piece.box, piece.dtype, piece.shape, state.at(piece.name), piece.bytes);
    }
  }
  void expect(const State& state) const {
    for (const LiveTensor& piece : live_) {
      std::vector<uint8_t> expected(piece.bytes.size());
      copy_box_out(piece.box, piece.dtype, piece.shape, state.at(piece.name), expected);
      EXPECT_TRUE(std::equal(expected.begin(), expected.end(), piece.bytes.begin()))
          << piece.name << " " << box_to_string(piece.box);
    }
  }

 private:
  std::vector<std::vector<uint8_t>> memory_;
  std::vector<LiveTensor> live_;
};

class Cluster {
 public:
  Cluster(const ShardLayout& trainer, const ShardLayout& engine, ShardOptions options = {}) {
    options.threads = 1;
    options.timeout_seconds = 60;
    plan_ = std::make_shared<const ShardPlan>(must(plan_shards(trainer, engine)));
    must(plan_->check());
    options_ = options;
    for (unsigned rank = 0; rank < trainer.ranks.size(); ++rank) {
      trainers_.emplace_back(trainer, rank);
    }
    restart_trainers();
    for (unsigned rank = 0; rank < engine.ranks.size(); ++rank) {
      engines_.emplace_back(engine, rank);
      receivers_.push_back(
          must(ShardReceiver::create(plan_, rank, *read_live(engines_.back().live()), options)));
    }
    std::mt19937 random(7);
    for (const ShardTensor& tensor : trainer.tensors) {
      state_[tensor.name] =
          random_bytes(tensor_size_bytes(tensor.dtype, tensor.shape).value(), &random);
    }
    train(1);
    regroup();
  }

  // Some elements get other bits.
  void train(unsigned seed) {
    std::mt19937 random(seed);
    for (auto& [name, bytes] : state_) {
      if (seed % 3 == 0 && random() % 2 == 0) continue;  // tensors that stay as they are
      for (size_t i = 0; i < 1 + bytes.size() / 50; ++i) {
        bytes[random() % bytes.size()] ^= uint8_t(1 + random() % 255);
      }
    }
    for (Rank& rank : trainers_) rank.set(state_);
  }

  // As processes that begin anew: nothing of what was sent is known.
  void restart_trainers() {
    senders_.clear();
    for (unsigned rank = 0; rank < trainers_.size(); ++rank) {
      senders_.push_back(
          must(ShardSender::create(plan_, rank, *read_live(trainers_[rank].live()), options_)));
    }
  }

  void regroup() { carriers_ = make_local_group(plan_->num_trainers + plan_->num_engines).value(); }

  struct Outcome {
    std::vector<Status> trainers, engines;
    std::vector<ShardReport> sent, received;
  };
  // Every rank of the group at once. Engine ranks in `dropping` get it and do not write it.
  Outcome send(uint64_t version, const std::vector<unsigned>& absent = {},
               const std::vector<unsigned>& dropping = {}) {
    Outcome outcome;
    outcome.trainers.resize(senders_.size());
    outcome.engines.resize(receivers_.size());
    outcome.sent.resize(senders_.size());
    outcome.received.resize(receivers_.size());
    each_rank(absent, [&](unsigned group_rank) {
      Carrier& carrier = *carriers_[group_rank];
      if (group_rank < senders_.size()) {
        auto report = senders_[group_rank].send(carrier, version);
        outcome.trainers[group_rank] = report.status();
        if (report.ok()) outcome.sent[group_rank] = *report;
        return;
      }
      const unsigned rank = group_rank - unsigned(senders_.size());
      auto report = receivers_[rank].receive(carrier);
      outcome.engines[rank] = report.status();
      if (!report.ok()) return;
      outcome.received[rank] = *report;
      if (std::find(dropping.begin(), dropping.end(), rank) != dropping.end()) {
        receivers_[rank].discarded();
      } else {
        outcome.engines[rank] = receivers_[rank].commit(engines_[rank].live());
      }
    });
    return outcome;
  }

  void expect_sent(uint64_t version) {
    const Outcome outcome = send(version);
    for (const Status& status : outcome.trainers) EXPECT_TRUE(status.ok()) << status.to_string();
    for (const Status& status : outcome.engines) EXPECT_TRUE(status.ok()) << status.to_string();
    for (const ShardReport& report : outcome.sent) {
      EXPECT_TRUE(report.notes.empty()) << report.notes[0];
    }
    expect_same();
  }
  void expect_same() const {
    for (const Rank& rank : engines_) rank.expect(state_);
  }

  // What every rank says of it.
  std::vector<Status> prove(uint64_t* compared = nullptr) {
    std::vector<Status> outcome(carriers_.size());
    each_rank({}, [&](unsigned rank) {
      const unsigned engine = rank - unsigned(senders_.size());
      auto own = rank < senders_.size() ? senders_[rank].proof() : receivers_[engine].proof();
      outcome[rank] = own.status();
      if (!own.ok()) return;
      auto proven = prove_shards(*carriers_[rank], *plan_, *own, 60);
      outcome[rank] = proven.status();
      if (proven.ok() && compared != nullptr && rank == 0) *compared = *proven;
    });
    return outcome;
  }

  // Calls body(rank) on a thread each. Absent ranks are gone: their connections close.
  template <class Body>
  void each_rank(const std::vector<unsigned>& absent, const Body& body) {
    for (const unsigned rank : absent) carriers_[rank].reset();
    in_threads(unsigned(carriers_.size()), [&](unsigned rank) {
      if (carriers_[rank]) body(rank);
    });
  }

  const ShardPlan& plan() const { return *plan_; }
  State& state() { return state_; }
  std::vector<Rank>& trainers() { return trainers_; }
  std::vector<Rank>& engines() { return engines_; }
  std::vector<ShardSender>& senders() { return senders_; }
  std::vector<ShardReceiver>& receivers() { return receivers_; }
  std::vector<std::unique_ptr<Carrier>>& carriers() { return carriers_; }

 private:
  std::shared_ptr<const ShardPlan> plan_;
  ShardOptions options_;
  State state_;
  std::vector<Rank> trainers_, engines_;
  std::vector<ShardSender> senders_;
  std::vector<ShardReceiver> receivers_;
  std::vector<std::unique_ptr<Carrier>> carriers_;
};

}  // namespace deltawire::testing
