

#include "cluster.h"
#include "shard/boxes.h"
#include "shard/layout.h"
#include "tensor/box.h"

namespace deltawire::testing {
namespace {

// Each box of each engine rank is made up, once, of what comes, and comes from where it is.
void expect_exact(const ShardPlan& plan, const ShardLayout& trainer, const ShardLayout& engine) {
  std::map<std::pair<unsigned, uint32_t>, std::vector<Box>> come;
  for (const ShardEdge& edge : plan.edges) {
    uint64_t bytes = 0;
    for (const ShardMove& move : edge.moves) {
      const ShardTensor& tensor = plan.tensors[move.tensor];
      come[{edge.engine, move.tensor}].push_back(spelled_out(move.box, tensor.shape));
      bytes += bytes_of(spelled_out(move.box, tensor.shape), tensor.dtype);
      const auto own = std::find_if(trainer.tensors.begin(), trainer.tensors.end(),
                                    [&](const ShardTensor& t) { return t.name == tensor.name; });
      ASSERT_NE(own, trainer.tensors.end());
      ASSERT_NE(find_holder(trainer.ranks[edge.trainer], uint32_t(own - trainer.tensors.begin()),
                            move.box),
                nullptr);
    }
    EXPECT_EQ(bytes, edge.bytes);
  }
  for (unsigned rank = 0; rank < engine.ranks.size(); ++rank) {
    for (uint32_t number = 0; number < engine.tensors.size(); ++number) {
      const ShardTensor& tensor = engine.tensors[number];
      uint64_t total = 0, held = 0;
      const std::vector<Box>& boxes = come[{rank, number}];
      for (const Box& box : boxes) total += num_elements_of(box);
      for (const ShardPiece& piece : pieces_of(engine.ranks[rank], number)) {
        const Box whole = spelled_out(piece.box, tensor.shape);
        held += num_elements_of(whole);
        std::vector<Box> inside;
        for (const Box& box : boxes) {
          if (contains(whole, box)) inside.push_back(relative_to(whole, box));
        }
        std::vector<const Box*> all;
        for (const Box& box : inside) all.push_back(&box);
        const Status cover = check_cover(tensor.dtype, whole.extent, all);
        EXPECT_TRUE(cover.ok()) << tensor.name << " " << cover.to_string();
      }
      EXPECT_EQ(total, held) << tensor.name;
    }
  }
}

TEST(ShardPlanTest, EveryElementComesOnce) {
  const char* specs[] = {"tp=1", "tp=2",         "tp=4",      "fsdp=4", "ep=2",       "ep=4",
                         "pp=2", "replicated=3", "tp=2,ep=2", "tp=8",   "fsdp=3,tp=2"};
  std::vector<ShardTensor> tensors = expert_tensors();
  std::erase_if(tensors, [](const ShardTensor& t) {  // 12 and 8 are not for 8 ranks
    return t.name.find("gate_up") != std::string::npos ||
           t.name.find("layers.1") != std::string::npos;
  });
  for (const char* from : specs) {
    const ShardLayout trainer = layout_for(from, tensors);
    for (const char* to : specs) {
      SCOPED_TRACE(std::string(from) + " -> " + to);
      const ShardLayout engine = layout_for(to, tensors);
      const ShardPlan plan = must(plan_shards(trainer, engine));
      ASSERT_TRUE(plan.check().ok()) << plan.check().to_string();
      expect_exact(plan, trainer, engine);
    }
  }
}

TEST(ShardPlanTest, EqualLayoutsGoFromRankToRank) {
  for (const char* spec : {"tp=4", "tp=2,replicated=2", "fsdp=3", "pp=2,tp=2", "replicated=4"}) {
    const ShardLayout layout = layout_for(spec, dense_tensors());
    const ShardPlan plan = must(plan_shards(layout, layout));
    EXPECT_EQ(plan.edges.size(), layout.ranks.size());
    for (const ShardEdge& edge : plan.edges) {
      EXPECT_EQ(edge.trainer, edge.engine);
      EXPECT_EQ(edge.moves.size(), layout.ranks[edge.engine].size());
      EXPECT_EQ(edge.bytes, layout.rank_bytes(edge.engine));
    }
  }
}

TEST(ShardPlanTest, ReplicasShareTheWork) {
  std::vector<ShardTensor> tensors;
  for (int i = 0; i < 64; ++i) tensors.push_back({"w" + std::to_string(i), DType::kBF16, {8, 8}});
  const ShardPlan plan = must(
      plan_shards(layout_for("replicated=4", tensors), *ShardLayout::of_spec("tp=1", tensors, "")));
  // Rank 0 has all that engine rank 0 wants: it alone sends.
  EXPECT_EQ(plan.edges.size(), 1u);
  // Four ranks hold each half; the two engine ranks that no trainer rank equals get from all.
  ShardLayout engine = layout_for("fsdp=2", tensors);
  ShardLayout trainer = layout_for("replicated=4", tensors);
  trainer.ranks[0].clear();
  trainer.ranks[1].clear();
  const ShardPlan shared = must(plan_shards(trainer, engine));
  EXPECT_EQ(shared.trainer_bytes, (std::vector<uint64_t>{0, 0, 4096, 4096}));
}

TEST(ShardPlanTest, RandomLayouts) {
  std::mt19937 random(1);
  const auto below = [&](unsigned n) { return unsigned(random() % n); };
  for (int round = 0; round < 200; ++round) {
    const std::vector<ShardTensor> tensors = {{"a", DType::kBF16, {1 + below(9), 1 + below(9)}},
                                              {"b", DType::kF32, {1 + below(30)}},
                                              {"c", DType::kU8, {2, 1 + below(5), 1 + below(5)}}};
    // Cuts of every tensor at random places of a random dimension; each box on some ranks.
    const auto layout = [&](unsigned num_ranks, bool all) {
      ShardLayout made{tensors, std::vector<std::vector<ShardPiece>>(num_ranks)};
      for (uint32_t number = 0; number < tensors.size(); ++number) {
        const Shape& shape = tensors[number].shape;
        const size_t d = below(unsigned(shape.size()));
        std::set<uint64_t> borders = {0, shape[d]};
        for (unsigned i = below(4); i > 0; --i) borders.insert(below(unsigned(shape[d]) + 1));
        for (auto at = borders.begin(); std::next(at) != borders.end(); ++at) {
          Box box{Shape(shape.size(), 0), shape};
          box.offset[d] = *at;
          box.extent[d] = *std::next(at) - *at;
          std::set<unsigned> holders;
          if (all || below(4) > 0) holders.insert(below(num_ranks));
          if (below(2) == 0) holders.insert(below(num_ranks));
          for (const unsigned rank : holders) made.ranks[rank].push_back({number, box});
        }
      }
      EXPECT_TRUE(settle_layout(&made).ok());
      return made;
    };
    const ShardLayout trainer = layout(1 + below(5), true), engine = layout(1 + below(5), false);
    const ShardPlan plan = must(plan_shards(trainer, engine));
    ASSERT_TRUE(plan.check().ok()) << plan.check().to_string();
    expect_exact(plan, trainer, engine);
  }
}

TEST(ShardPlanTest, SourcesThatOverlapGiveEachElementOnce) {
  const std::vector<ShardTensor> tensors = {{"w", DType::kBF16, {8, 8}}};
  const ShardLayout trainer{
      tensors, {{{0, {{0, 0}, {5, 8}}}}, {{0, {{3, 0}, {5, 8}}}}, {{0, {{2, 2}, {4, 4}}}}}};
  const ShardLayout engine{tensors, {{{0, {}}}, {{0, {{1, 1}, {6, 6}}}}}};
  const ShardPlan plan = must(plan_shards(trainer, engine));
  ASSERT_TRUE(plan.check().ok());
  expect_exact(plan, trainer, engine);
}

TEST(ShardPlanTest, ObstaclesHaveNames) {
  const ShardTensor w{"w", DType::kBF16, {4, 4}};
  const auto refusals = [](ShardLayout trainer, ShardLayout engine) {
    const ShardPlan plan = must(plan_shards(trainer, engine));
    EXPECT_FAILS(plan.check(), kUnsupported);
    return std::string(shard_obstacle_name(plan.refusals.at(0).obstacle)) + " " +
           plan.refusals[0].tensor + " " + std::to_string(plan.refusals.size());
  };
  const ShardLayout whole{{w}, {{{0, {}}}}};
  EXPECT_EQ(refusals({{}, {{}}}, whole), "missing-tensor w 1");
  EXPECT_EQ(refusals({{{"w", DType::kF16, {4, 4}}}, {{{0, {}}}}}, whole), "other-dtype w 1");
  EXPECT_EQ(refusals({{{"w", DType::kBF16, {4, 5}}}, {{{0, {}}}}}, whole), "other-shape w 1");
  EXPECT_EQ(refusals({{w}, {{{0, {{0, 0}, {3, 4}}}}}}, whole), "gap w 1");
  EXPECT_EQ(refusals({{w}, {{}}}, whole), "gap w 1");
}

TEST(ShardPlanTest, DigestsAreThoseOfThePlanWhateverIsKept) {
  const ShardLayout four = layout_for("tp=4", dense_tensors());
  const ShardLayout two = layout_for("tp=2", dense_tensors());
  const ShardPlan plan = must(plan_shards(four, two));
  const auto kept = plan_shards(four, two, {.trainer = 3});
  EXPECT_EQ(kept->digest, plan.digest);
  for (const ShardEdge& edge : kept->edges) EXPECT_EQ(edge.moves.empty(), edge.trainer != 3);
  EXPECT_EQ(kept->bytes(), plan.bytes());
  EXPECT_NE(must(plan_shards(two, four)).digest, plan.digest);
  EXPECT_NE(must(plan_shards(four, layout_for("fsdp=2", dense_tensors()))).digest, plan.digest);
  EXPECT_FAILS(plan_shards(four, two, {.trainer = 4}), kInvalidArgument);
  EXPECT_FAILS(plan_shards({}, two), kInvalidArgument);
}

// 256 ranks to 128 with 2000 tensors: what a rank of a large cluster does once.
TEST(ShardPlanTest, LargeClustersArePlannedInOneGo) {
  std::vector<ShardTensor> tensors = {{"model.embed_tokens.weight", DType::kBF16, {131072, 8192}}};
  for (int layer = 0; layer < 20; ++layer) {
    const std::string at = "model.layers." + std::to_string(layer) + ".";
    tensors.push_back({at + "self_attn.q_proj.weight", DType::kBF16, {8192, 8192}});
    tensors.push_back({at + "self_attn.o_proj.weight", DType::kBF16, {8192, 8192}});
    tensors.push_back({at + "norm.weight", DType::kBF16, {8192}});
    for (int expert = 0; expert < 96; ++expert) {
      const std::string name = at + "mlp.experts." + std::to_string(expert) + ".up_proj.weight";
      tensors.push_back({name, DType::kBF16, {4096, 8192}});
    }
  }
  const ShardLayout trainer = layout_for("fsdp=256", tensors);
  const ShardLayout engine = layout_for("tp=128", tensors);
  const auto plan = plan_shards(trainer, engine, {.engine = 5});
  ASSERT_TRUE(plan.ok() && plan->check().ok());
  EXPECT_EQ(plan->engine_bytes[5], engine.rank_bytes(5));
  EXPECT_GT(plan->edges.size(), 250u);
}

}  // namespace
}  // namespace deltawire::testing
