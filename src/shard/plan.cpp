#include <algorithm>
#include <unordered_map>

#include "base/bytes.h"
#include "base/log.h"
#include "shard/boxes.h"
#include "shard/layout.h"
#include "shard/sources.h"
#include "tensor/box.h"
#include "tensor/form.h"
#include "tensor/text.h"

namespace deltawire {
namespace {

constexpr std::string_view kObstacles[] = {"missing-tensor", "other-dtype", "other-shape", "gap",
                                           "cut-bytes"};

// All ranks make the same plan as long as they plan alike: another way to plan is another number.
constexpr std::string_view kPlanKind = "shard-plan/1";

class Planner {
 public:
  Planner(const ShardLayout& trainer, const ShardLayout& engine, const ShardPlanOptions& options)
      : trainer_(trainer), engine_(engine), options_(options) {
    plan_.num_trainers = unsigned(trainer.ranks.size());
    plan_.num_engines = unsigned(engine.ranks.size());
    plan_.tensors = engine.tensors;
    plan_.trainer_bytes.resize(plan_.num_trainers);
    plan_.engine_bytes.resize(plan_.num_engines);
    plan_.trainer_sums.resize(plan_.num_trainers);
    plan_.engine_sums.resize(plan_.num_engines);
    hasher_.update(kPlanKind);
    add_number(plan_.num_trainers);
    add_number(plan_.num_engines);
  }

  ShardPlan make() {
    match_tensors();
    find_local_ranks();
    RankCursors trainers(trainer_), engines(engine_);
    for (uint32_t number = 0; number < plan_.tensors.size(); ++number) {
      const ShardTensor& tensor = plan_.tensors[number];
      const std::vector<HeldBox> wanted = engines.boxes_of(number, tensor.shape);
      plan_.model_bytes += bytes_of(spelled_out({}, tensor.shape), tensor.dtype);
      add_tensor(tensor);
      if (!in_trainer_[number]) continue;
      const SourceBoxes sources(trainers.boxes_of(*in_trainer_[number], tensor.shape),
                                tensor.shape);
      add_sums(number, sources.boxes(), wanted);
      for (const HeldBox& box : wanted) serve(number, box, sources);
    }
    finish();
    return std::move(plan_);
  }

 private:
  // Which of the trainer's tensors is which of the engine's.
  void match_tensors() {
    in_trainer_.resize(plan_.tensors.size());
    auto own = trainer_.tensors.begin();
    for (uint32_t number = 0; number < plan_.tensors.size(); ++number) {
      const ShardTensor& tensor = plan_.tensors[number];
      while (own != trainer_.tensors.end() && own->name < tensor.name) ++own;
      if (own == trainer_.tensors.end() || own->name != tensor.name) {
        refuse(ShardObstacle::kMissingTensor, tensor, "no trainer rank holds it");
      } else if (own->dtype != tensor.dtype) {
        refuse(ShardObstacle::kOtherDtype, tensor, forms(*own, tensor));
      } else if (own->shape != tensor.shape) {
        refuse(ShardObstacle::kOtherShape, tensor, forms(*own, tensor));
      } else {
        in_trainer_[number] = uint32_t(own - trainer_.tensors.begin());
      }
    }
  }

  // Engine ranks that trainer ranks of the same number can serve alone.
  void find_local_ranks() {
    local_.resize(plan_.num_engines);
    for (unsigned rank = 0; rank < std::min(plan_.num_trainers, plan_.num_engines); ++rank) {
      const std::vector<ShardPiece>& held = trainer_.ranks[rank];
      local_[rank] = std::all_of(
          engine_.ranks[rank].begin(), engine_.ranks[rank].end(), [&](const ShardPiece& piece) {
            const std::optional<uint32_t>& number = in_trainer_[piece.tensor];
            return number && find_holder(held, *number, piece.box) != nullptr;
          });
      if (local_[rank]) plan_.trainer_bytes[rank] = engine_.rank_bytes(rank);
    }
  }

  // Only tensors that the boxes of both sides make up can be compared by their digests.
  void add_sums(uint32_t number, const std::vector<HeldBox>& held,
                const std::vector<HeldBox>& wanted) {
    if (!make_up(number, held) || !make_up(number, wanted)) return;
    for (const HeldBox& box : held) {
      if (options_.engine || (options_.trainer && *options_.trainer != box.ranks[0])) continue;
      plan_.trainer_sums[box.ranks[0]].push_back({number, box.box});
    }
    for (const HeldBox& box : wanted) {
      if (options_.trainer || (options_.engine && *options_.engine != box.ranks[0])) continue;
      plan_.engine_sums[box.ranks[0]].push_back({number, box.box});
    }
  }
  bool make_up(uint32_t number, const std::vector<HeldBox>& held) const {
    std::vector<const Box*> boxes;
    for (const HeldBox& one : held) boxes.push_back(&one.box);
    const ShardTensor& tensor = plan_.tensors[number];
    return check_cover(tensor.dtype, tensor.shape, boxes).ok();
  }

  // One box of the engine's, to all engine ranks that have it.
  void serve(uint32_t number, const HeldBox& wanted, const SourceBoxes& sources) {
    const ShardTensor& tensor = plan_.tensors[number];
    const SourceBoxes::Cover cover = sources.cover(wanted.box);
    if (!cover.gaps.empty()) {
      refuse(ShardObstacle::kGap, tensor,
             "no trainer rank holds its box " + box_to_string(cover.gaps[0]));
      return;
    }
    for (const SourceBoxes::Part& part : cover.parts) {
      if (check_box(part.box, tensor.dtype, tensor.shape).ok()) continue;
      refuse(ShardObstacle::kCutBytes, tensor,
             "box " + box_to_string(part.box) + " cuts a byte of packed elements");
      return;
    }
    for (const unsigned engine : wanted.ranks) {
      if (local_[engine]) {
        add_move(engine, engine, number, wanted.box);
        continue;
      }
      for (const SourceBoxes::Part& part : cover.parts) {
        const unsigned trainer = idlest(*part.holders, engine);
        plan_.trainer_bytes[trainer] += bytes_of(part.box, tensor.dtype);
        add_move(trainer, engine, number, part.box);
      }
    }
  }

  // Of those that have least to send, the next one from the engine rank's number on.
  unsigned idlest(const std::vector<unsigned>& holders, unsigned engine) const {
    const auto distance = [&](unsigned rank) {
      return (rank + plan_.num_trainers - engine % plan_.num_trainers) % plan_.num_trainers;
    };
    return *std::min_element(holders.begin(), holders.end(), [&](unsigned a, unsigned b) {
      const uint64_t load_a = plan_.trainer_bytes[a], load_b = plan_.trainer_bytes[b];
      return load_a != load_b ? load_a < load_b : distance(a) < distance(b);
    });
  }

  void add_move(unsigned trainer, unsigned engine, uint32_t tensor, const Box& box) {
    const auto [at, is_new] =
        edge_numbers_.try_emplace(uint64_t{trainer} << 32 | engine, plan_.edges.size());
    if (is_new) plan_.edges.push_back({trainer, engine, 0, {}});
    ShardEdge& edge = plan_.edges[at->second];
    const uint64_t bytes = bytes_of(box, plan_.tensors[tensor].dtype);
    edge.bytes += bytes;
    plan_.engine_bytes[engine] += bytes;
    add_number(trainer);
    add_number(engine);
    for (const uint64_t at_dimension : box.offset) add_number(at_dimension);
    for (const uint64_t extent : box.extent) add_number(extent);
    const bool kept = (!options_.trainer || *options_.trainer == trainer) &&
                      (!options_.engine || *options_.engine == engine);
    if (kept) edge.moves.push_back({tensor, box});
  }

  void finish() {
    std::sort(plan_.edges.begin(), plan_.edges.end(), [](const ShardEdge& a, const ShardEdge& b) {
      return a.trainer != b.trainer ? a.trainer < b.trainer : a.engine < b.engine;
    });
    plan_.digest = hasher_.finish();
  }

  void refuse(ShardObstacle obstacle, const ShardTensor& tensor, std::string words) {
    const bool known = !plan_.refusals.empty() && plan_.refusals.back().tensor == tensor.name;
    if (!known) plan_.refusals.push_back({obstacle, tensor.name, std::move(words)});
  }
  static std::string forms(const ShardTensor& trainer, const ShardTensor& engine) {
    return "is " + form_of(trainer.dtype, trainer.shape) + " in the trainer and " +
           form_of(engine.dtype, engine.shape) + " in the engine";
  }

  void add_tensor(const ShardTensor& tensor) {
    hasher_.update(tensor.name);
    hasher_.update(std::string_view("\n"));
    hasher_.update(dtype_name(tensor.dtype));
    hasher_.update(shape_to_string(tensor.shape));
  }
  void add_number(uint64_t number) {
    uint8_t bytes[sizeof number];
    store_le(bytes, number);
    hasher_.update(bytes);
  }

  const ShardLayout& trainer_;
  const ShardLayout& engine_;
  const ShardPlanOptions& options_;
  std::vector<std::optional<uint32_t>> in_trainer_;  // by the engine's number
  std::vector<bool> local_;                          // by engine rank
  std::unordered_map<uint64_t, size_t> edge_numbers_;
  Hasher hasher_{DigestKind::kXxh3_128};
  ShardPlan plan_;
};

}  // namespace

std::string_view shard_obstacle_name(ShardObstacle obstacle) noexcept {
  return kObstacles[size_t(obstacle)];
}

uint64_t ShardPlan::bytes() const {
  uint64_t all = 0;
  for (const ShardEdge& edge : edges) all += edge.bytes;
  return all;
}

Status ShardPlan::check() const {
  if (refusals.empty()) return {};
  const ShardRefusal& first = refusals[0];
  std::string words = std::string(shard_obstacle_name(first.obstacle)) + ": tensor " +
                      quote(first.tensor) + ": " + first.words;
  if (refusals.size() > 1) words += "; and " + std::to_string(refusals.size() - 1) + " more";
  return unsupported("shard to shard: " + words);
}

Result<ShardPlan> plan_shards(const ShardLayout& trainer, const ShardLayout& engine,
                              const ShardPlanOptions& options) {
  if (trainer.ranks.empty() || engine.ranks.empty()) {
    return invalid_argument("shard plan: a layout without ranks");
  }
  if ((options.trainer && *options.trainer >= trainer.ranks.size()) ||
      (options.engine && *options.engine >= engine.ranks.size())) {
    return invalid_argument("shard plan: no layout has the rank that it is for");
  }
  ShardPlan plan = Planner(trainer, engine, options).make();
  if (const Status usable = plan.check(); !usable.ok()) {
    log_event(LogLevel::kWarning, "shards.fallback",
              {{"transport", "broadcast"},
               {"obstacle", shard_obstacle_name(plan.refusals[0].obstacle)},
               {"reason", usable.message()}});
  }
  return plan;
}

}  // namespace deltawire
