#include "shard/items.h"

#include <algorithm>

#include "base/guard.h"
#include "base/thread_pool.h"
#include "format/tensor_digest.h"
#include "shard/boxes.h"
#include "tensor/box.h"
#include "tensor/text.h"

namespace deltawire::shard {
namespace {

Result<std::vector<const ShardEdge*>> edges_where(const ShardPlan& plan, const char* side,
                                                  unsigned rank, unsigned num_ranks,
                                                  unsigned ShardEdge::*end) {
  const std::string place = std::string(side) + " rank " + std::to_string(rank);
  if (rank >= num_ranks) {
    return invalid_argument(place + ": the plan has " + std::to_string(num_ranks));
  }
  DW_RETURN_IF_ERROR(plan.check());
  std::vector<const ShardEdge*> edges;
  for (const ShardEdge& edge : plan.edges) {
    if (edge.*end != rank) continue;
    if (edge.moves.empty()) return invalid_argument(place + ": the plan was made for another rank");
    edges.push_back(&edge);
  }
  return edges;
}

}  // namespace

std::vector<Item> items_of(const ShardPlan& plan, const ShardEdge& edge, uint64_t slice_bytes) {
  std::vector<Item> items;
  for (uint32_t move = 0; move < edge.moves.size(); ++move) {
    const ShardMove& own = edge.moves[move];
    const ShardTensor& tensor = plan.tensors[own.tensor];
    for (Slice& slice : split_rows(own.box, tensor.dtype, tensor.shape, slice_bytes)) {
      items.push_back({move, own.tensor, std::move(slice.box), slice.begin, slice.size_bytes});
    }
  }
  return items;
}

Result<std::vector<const ShardEdge*>> edges_of_trainer(const ShardPlan& plan, unsigned trainer) {
  return edges_where(plan, "trainer", trainer, plan.num_trainers, &ShardEdge::trainer);
}
Result<std::vector<const ShardEdge*>> edges_of_engine(const ShardPlan& plan, unsigned engine) {
  return edges_where(plan, "engine", engine, plan.num_engines, &ShardEdge::engine);
}

Result<Proof> sum_pieces(const ShardPlan& plan, const std::vector<ShardPiece>& pieces,
                         const ReadShard& read, const ShardOptions& options) {
  std::vector<SummedPiece> summed(pieces.size());
  ThreadPool pool(options.threads);
  DW_RETURN_IF_ERROR(
      parallel_try("summing shards", &pool, pieces.size(), [&](size_t i, unsigned) -> Status {
        const ShardTensor& tensor = plan.tensors[pieces[i].tensor];
        summed[i] = {tensor.name, tensor.dtype, tensor.shape, pieces[i].box, {}};
        std::vector<uint8_t> contents;
        for (const Slice& slice :
             split_rows(pieces[i].box, tensor.dtype, tensor.shape, options.slice_bytes)) {
          contents.resize(slice.size_bytes);
          DW_RETURN_IF_ERROR(read(tensor, slice.box, contents).at("tensor " + quote(tensor.name)));
          const BoxRows rows(slice.box, tensor.dtype, tensor.shape);
          DW_ASSIGN_OR_RETURN(const Sums sums, sums_of_box(rows, contents, nullptr));
          summed[i].sums.add(sums);
        }
        return {};
      }));
  Proof proof;
  DW_RETURN_IF_ERROR(proof.add(summed));
  return proof;
}

}  // namespace deltawire::shard
