

#include "shard/layout.h"
#include "cluster.h"
#include "tensor/box.h"

namespace deltawire::testing {
namespace {

// The boxes of a tensor on a rank, as text.
std::vector<std::string> boxes(const ShardLayout& layout, unsigned rank, std::string_view name) {
  std::vector<std::string> found;
  for (const ShardPiece& piece : layout.ranks[rank]) {
    if (layout.tensors[piece.tensor].name != name) continue;
    found.push_back(piece.box.whole() ? "-" : box_to_string(piece.box));
  }
  return found;
}
using Texts = std::vector<std::string>;

TEST(ShardLayoutTest, TensorParallelRanksCutAsTheTableSays) {
  const ShardLayout two = layout_for("tp=2", dense_tensors());
  ASSERT_EQ(two.ranks.size(), 2u);
  const std::string at = "model.layers.1.";
  EXPECT_EQ(boxes(two, 1, at + "self_attn.q_proj.weight"), Texts{"16,0+16,16"});
  EXPECT_EQ(boxes(two, 1, at + "self_attn.q_proj.bias"), Texts{"16+16"});
  EXPECT_EQ(boxes(two, 1, at + "self_attn.k_proj.weight"), Texts{"4,0+4,16"});
  EXPECT_EQ(boxes(two, 1, at + "self_attn.o_proj.weight"), Texts{"0,16+16,16"});
  EXPECT_EQ(boxes(two, 0, at + "mlp.down_proj.weight"), Texts{"0,0+16,12"});
  EXPECT_EQ(boxes(two, 1, "model.embed_tokens.weight"), Texts{"19,0+18,16"});
  EXPECT_EQ(boxes(two, 1, at + "input_layernorm.weight"), Texts{"-"});
  EXPECT_EQ(boxes(two, 1, "scale"), Texts{"-"});
}

TEST(ShardLayoutTest, NeighboursShareAHeadWhereThereAreMoreRanksThanHeads) {
  const ShardLayout eight = layout_for("tp=8", dense_tensors());
  for (unsigned rank = 0; rank < 8; ++rank) {
    EXPECT_EQ(boxes(eight, rank, "model.layers.0.self_attn.k_proj.weight"),
              Texts{rank < 4 ? "0,0+4,16" : "4,0+4,16"});
  }
  // Without a configuration nobody knows how many heads there are; a word may say it.
  const std::vector<ShardTensor> tensors = dense_tensors();
  EXPECT_EQ(*ShardLayout::of_spec("tp=8,kv_heads=2", tensors, ""), eight);
  EXPECT_EQ(boxes(*ShardLayout::of_spec("tp=8", tensors, ""), 3,
                  "model.layers.0.self_attn.k_proj.weight"),
            Texts{"3,0+1,16"});
}

TEST(ShardLayoutTest, ExpertsGoByNumberAndInsideByTensorParallelRanks) {
  const ShardLayout four = layout_for("tp=2,ep=2", expert_tensors());
  ASSERT_EQ(four.ranks.size(), 4u);
  const std::string expert = "model.layers.0.mlp.experts.5.";
  EXPECT_EQ(boxes(four, 1, expert + "up_proj.weight"), Texts{});
  EXPECT_EQ(boxes(four, 3, expert + "up_proj.weight"), Texts{"4,0+4,16"});
  EXPECT_EQ(boxes(four, 3, expert + "down_proj.weight"), Texts{"0,4+16,4"});
  EXPECT_EQ(boxes(four, 3, "model.layers.1.mlp.experts.gate_up_proj"),
            (Texts{"4,0,6+4,16,6", "4,0,18+4,16,6"}));
  EXPECT_EQ(boxes(four, 2, "model.layers.1.mlp.experts.down_proj"), Texts{"4,0,0+4,6,16"});
  EXPECT_EQ(boxes(four, 1, "model.layers.2.self_attn.qkv_proj.weight"),
            (Texts{"16,0+16,16", "36,0+4,16", "44,0+4,16"}));
  EXPECT_EQ(boxes(four, 1, "model.layers.2.mlp.gate_up_proj.weight"),
            (Texts{"6,0+6,16", "18,0+6,16"}));
  EXPECT_EQ(boxes(four, 3, "model.layers.0.mlp.gate.weight"), Texts{"-"});
}

TEST(ShardLayoutTest, StagesHaveTheirLayersAndReplicasAll) {
  const ShardLayout two = layout_for("pp=2", dense_tensors());
  EXPECT_EQ(boxes(two, 0, "model.layers.0.mlp.up_proj.weight"), Texts{"-"});
  EXPECT_EQ(boxes(two, 1, "model.layers.0.mlp.up_proj.weight"), Texts{});
  EXPECT_EQ(boxes(two, 0, "model.embed_tokens.weight"), Texts{"-"});
  EXPECT_EQ(boxes(two, 1, "model.embed_tokens.weight"), Texts{});
  EXPECT_EQ(boxes(two, 1, "lm_head.weight"), Texts{"-"});
  const ShardLayout replicas = layout_for("replicated=3", dense_tensors());
  EXPECT_EQ(replicas.ranks[2], replicas.ranks[0]);
  EXPECT_EQ(replicas.ranks[2].size(), replicas.tensors.size());
}

TEST(ShardLayoutTest, FullyShardedRowsMayBeUneven) {
  const ShardLayout four = layout_for("fsdp=4", dense_tensors());
  EXPECT_EQ(boxes(four, 0, "lm_head.weight"), Texts{"0,0+10,16"});
  EXPECT_EQ(boxes(four, 3, "lm_head.weight"), Texts{"30,0+7,16"});
  EXPECT_EQ(boxes(four, 3, "scale"), Texts{"-"});
  // As torch.chunk: 9 rows on 4 ranks are 3, 3, 3, 0.
  const std::vector<ShardTensor> nine = {{"w", DType::kF32, {9, 2}}};
  EXPECT_TRUE(layout_for("fsdp=4", nine).ranks[3].empty());
}

TEST(ShardLayoutTest, RanksTogetherHoldAllOnce) {
  for (const char* spec : {"tp=2", "tp=4", "fsdp=3", "tp=2,fsdp=4", "ep=4", "pp=3,tp=2,ep=2"}) {
    const ShardLayout layout = layout_for(spec, expert_tensors());
    for (uint32_t number = 0; number < layout.tensors.size(); ++number) {
      const ShardTensor& tensor = layout.tensors[number];
      std::map<std::string, const Box*> different;
      for (const auto& rank : layout.ranks) {
        for (const ShardPiece& piece : pieces_of(rank, number)) {
          different[box_to_string(piece.box)] = &piece.box;
        }
      }
      std::vector<const Box*> all;
      for (const auto& [text, box] : different) all.push_back(box);
      EXPECT_TRUE(check_cover(tensor.dtype, tensor.shape, all).ok()) << spec << " " << tensor.name;
    }
  }
}

TEST(ShardLayoutTest, TextComesBack) {
  for (const char* spec : {"tp=4", "tp=2,ep=2", "fsdp=4", "pp=2", "replicated=2"}) {
    const ShardLayout layout = layout_for(spec, expert_tensors());
    EXPECT_EQ(must(ShardLayout::parse(layout.to_text())), layout);
  }
}

TEST(ShardLayoutTest, JoinedRanksAreTheLayout) {
  const ShardLayout four = layout_for("tp=4", dense_tensors());
  std::vector<ShardLayout> parts;
  for (const auto& rank : four.ranks) parts.push_back({four.tensors, {rank}});
  EXPECT_EQ(*ShardLayout::join(parts), four);
  parts[1].tensors[0].dtype = DType::kF16;
  EXPECT_FAILS(ShardLayout::join(parts), kInvalidArgument, "lm_head.weight");
}

TEST(ShardLayoutTest, WordsThatAreNoneAreRefused) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "no word=count"},         {"tp", "no word=count"},
      {"tp=0", "no word=count"},     {"tp=-1", "no word=count"},
      {"xp=2", "there is no"},       {"tp=2,tp=2", "comes twice"},
      {"tp=99999999", "over 65536"}, {"tp=256,ep=257", "over 65536"},
      {"tp=2,", "no word=count"},    {"tp=18446744073709551617", "no word=count"},
  };
  for (const auto& [spec, why] : cases) {
    EXPECT_FAILS(ShardLayout::of_spec(spec, dense_tensors(), kConfig), kInvalidArgument, why);
  }
  // 24 rows of gate_proj for 5 ranks.
  const Status uneven = ShardLayout::of_spec("tp=5", dense_tensors(), kConfig).status();
  EXPECT_NE(uneven.message().find("cannot be shared by 5 ranks"), std::string::npos);
  EXPECT_NE(uneven.message().find("tensor \"model.layers.0."), std::string::npos);
}

TEST(ShardLayoutTest, HostileTextsAreNamed) {
  const auto text = [](std::string tensors, std::string ranks) {
    return R"({"format":"shard-layout/1","tensors":)" + tensors + R"(,"ranks":)" + ranks + "}";
  };
  const std::string w = R"([["w","BF16",[4,4]]])";
  const std::pair<std::string, const char*> cases[] = {
      {"", "no JSON object"},
      {"[1]", "no JSON object"},
      {"{}", "\"format\""},
      {text("0", "0"), "to be lists"},
      {text("[[1,2,3]]", "[]"), "a tensor is"},
      {text(R"([["w","BF17",[4]]])", "[]"), "no dtype"},
      {text(R"([["w","BF16",[-4]]])", "[]"), "whole numbers"},
      {text(R"([["w","BF16",[9223372036854775807,9223372036854775807]]])", "[]"), "tensor \"w\""},
      {text(R"([["w","BF16",[4]],["w","BF16",[4]]])", "[]"), "comes twice"},
      {text(w, "[0]"), "list of pieces"},
      {text(w, R"([[[1,"-"]]])"), "a piece is"},
      {text(w, R"([[[0,"x"]]])"), "offsets+extents"},
      {text(w, R"([[[0,"0,2+4,4"]]])"), "leaves dimension 1"},
      {text(R"([["w","BF16",[1099511627776,1048576]]])", R"([[[0,"-"]]])"), "larger than any"},
      {text(w, R"([[[0,"0,18446744073709551615+1,2"]]])"), "leaves dimension 1"},
      {text(w, R"([[[0,"0+4"]]])"), "expected 2 dimensions"},
      {text(w, R"([[[0,"0,0+2,4"],[0,"1,0+2,4"]]])"), "overlap"},
      {text(w, R"([[[0,"-"],[0,"-"]]])"), "overlap"},
  };
  for (const auto& [hostile, why] : cases) {
    EXPECT_FAILS(ShardLayout::parse(hostile), kCorruption, why);
  }
}

}  // namespace
}  // namespace deltawire::testing
