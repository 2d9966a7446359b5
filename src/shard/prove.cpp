// Sums go to group rank 0, digests are compared there, and everybody hears what came of it.
#include <algorithm>

#include "base/guard.h"
#include "shard/messages.h"
#include "tensor/text.h"

namespace deltawire {
namespace {

using shard::Verdict;

// A proof has about 100 bytes for each box: more than a model of 1 T parameters has.
constexpr uint64_t kMostProofBytes = uint64_t{1} << 30;
constexpr size_t kNamedTensors = 5;

std::string rank_words(const ShardPlan& plan, unsigned rank) {
  return rank < plan.num_trainers ? "trainer rank " + std::to_string(rank)
                                  : "engine rank " + std::to_string(rank - plan.num_trainers);
}

Result<uint64_t> compare(const Proof& trainer, const Proof& engine) {
  DW_ASSIGN_OR_RETURN(const auto expected, trainer.digests());
  DW_ASSIGN_OR_RETURN(const auto got, engine.digests());
  std::string wrong;
  size_t count = 0;
  for (const auto& [name, digest] : expected) {
    const auto own = got.find(name);
    if (own != got.end() && own->second == digest) continue;
    if (count++ < kNamedTensors) wrong += (wrong.empty() ? "" : ", ") + quote(name);
  }
  if (got.size() != expected.size()) ++count;
  if (count == 0) return uint64_t{expected.size()};
  return base_mismatch("engine ranks do not hold what trainer ranks hold: " +
                       std::to_string(count) + " tensors differ: " + wrong);
}

// On rank 0: one proof after the other, so that no more than one is held as text.
Result<uint64_t> gather(Carrier& carrier, const ShardPlan& plan, const Proof& own,
                        double timeout_seconds) {
  Proof trainer = own, engine;
  std::vector<std::array<uint8_t, 8>> sizes(carrier.size());
  std::vector<FromRank> from;
  for (unsigned rank = 1; rank < carrier.size(); ++rank) from.push_back({rank, sizes[rank]});
  DW_RETURN_IF_ERROR(carrier.exchange({}, from, timeout_seconds));
  Status failure;  // the first; what comes after it is heard, so that nobody waits
  for (unsigned rank = 1; rank < carrier.size(); ++rank) {
    const std::string place = rank_words(plan, rank);
    const uint64_t size = load_le<uint64_t>(sizes[rank].data());
    if (size == 0 || size > kMostProofBytes) {
      return corruption(place + ": a proof of " + std::to_string(size) + " bytes");
    }
    std::string text(size, '\0');
    const FromRank body{rank, {reinterpret_cast<uint8_t*>(text.data()), text.size()}};
    DW_RETURN_IF_ERROR(carrier.exchange({}, {&body, 1}, timeout_seconds));
    const Result<Proof> proof = Proof::parse(text);
    Status added =
        proof.ok() ? (rank < plan.num_trainers ? trainer : engine).add(*proof) : proof.status();
    if (failure.ok() && !added.ok()) failure = std::move(added).at(place);
  }
  DW_RETURN_IF_ERROR(failure);
  return compare(trainer, engine);
}

Status give(Carrier& carrier, const Proof& own, double timeout_seconds) {
  const std::string text = own.to_text();
  std::array<uint8_t, 8> size;
  store_le<uint64_t>(size.data(), text.size());
  const ToRank head{0, size};
  const ToRank body{0, {reinterpret_cast<const uint8_t*>(text.data()), text.size()}};
  DW_RETURN_IF_ERROR(carrier.exchange({&head, 1}, {}, timeout_seconds));
  return carrier.exchange({&body, 1}, {}, timeout_seconds);
}

}  // namespace

Result<uint64_t> prove_shards(Carrier& carrier, const ShardPlan& plan, const Proof& own,
                              double timeout_seconds) {
  if (carrier.size() != plan.num_trainers + plan.num_engines) {
    return invalid_argument("shards: the plan is for " +
                            std::to_string(plan.num_trainers + plan.num_engines) +
                            " ranks, the group has " + std::to_string(carrier.size()));
  }
  return guard_memory("proving shards", [&]() -> Result<uint64_t> {
    if (carrier.rank() != 0) {
      DW_RETURN_IF_ERROR(give(carrier, own, timeout_seconds));
      std::vector<uint8_t> heard(Verdict::kBytes);
      const FromRank from{0, heard};
      DW_RETURN_IF_ERROR(carrier.exchange({}, {&from, 1}, timeout_seconds));
      DW_ASSIGN_OR_RETURN(const Verdict verdict, shard::parse_verdict(heard));
      DW_RETURN_IF_ERROR(verdict.status());
      return verdict.count;
    }
    Result<uint64_t> proven = gather(carrier, plan, own, timeout_seconds);
    Verdict verdict = Verdict::of(proven.status());
    if (proven.ok()) verdict.count = *proven;
    const std::vector<uint8_t> words = shard::pack(verdict);
    std::vector<ToRank> to;
    for (unsigned rank = 1; rank < carrier.size(); ++rank) to.push_back({rank, words});
    const Status told = carrier.exchange(to, {}, timeout_seconds);
    if (!proven.ok()) return std::move(proven).status();
    DW_RETURN_IF_ERROR(told);
    return proven;
  });
}

}  // namespace deltawire
