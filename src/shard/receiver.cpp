#include <algorithm>
#include <map>

#include "base/clock.h"
#include "base/guard.h"
#include "base/log.h"
#include "shard/decode.h"
#include "shard/group.h"
#include "shard/items.h"
#include "shard/live.h"
#include "shard/messages.h"

namespace deltawire {

using namespace shard;

namespace {

// What is held of one trainer rank: a name of a state, see Hello.
using States = std::map<unsigned, uint64_t>;

}  // namespace

struct ShardReceiver::Impl {
  std::shared_ptr<const ShardPlan> plan;
  unsigned engine = 0;
  ReadShard read;
  ShardOptions options;
  std::vector<const ShardEdge*> edges;
  ThreadPool pool, overlap{2};

  States held, coming;  // by trainer rank
  std::optional<uint64_t> version, coming_version;
  std::vector<StagedShard> staged;

  Impl(std::shared_ptr<const ShardPlan> made, unsigned rank, ReadShard reader,
       const ShardOptions& given)
      : plan(std::move(made)),
        engine(rank),
        read(std::move(reader)),
        options(given),
        pool(given.threads) {}

  // A version that may be written; a rank of which nothing is sent always has it.
  bool has_received() const { return coming_version || edges.empty(); }
  uint64_t edge_bucket() const {
    return std::max(kLeastSlice, options.bucket_bytes / 2 / std::max<uint64_t>(1, edges.size()));
  }
  Result<std::vector<InEdge>> greet(Group* group, ShardReport* report);
  Result<InEdge> begin_edge(const ShardEdge& edge, Bytes words, ShardReport* report);
  Result<std::vector<Arrived>> hear_heads(std::vector<InEdge>* in, uint64_t round, Group* group);
  Status receive_rounds(std::vector<InEdge>* in, Group* group, ShardReport* report);
  Status check_all_came(const Group& group) const;
  void note_failure(Status status, Status* failure);
  void count(ShardReport* report) const;
};

Result<InEdge> ShardReceiver::Impl::begin_edge(const ShardEdge& edge, Bytes words,
                                               ShardReport* report) {
  const std::string place = "trainer rank " + std::to_string(edge.trainer);
  Result<Hello> hello = parse_hello(words);
  if (!hello.ok()) return std::move(hello).status().at(place);
  if (!std::equal(hello->plan.begin(), hello->plan.end(), plan->digest.bytes.begin())) {
    return conflict(place + " made another plan than engine rank " + std::to_string(engine));
  }
  if (hello->slice_bytes < kLeastSlice || hello->slice_bytes > kMostSlice || hello->state == 0) {
    return corruption(place + ": a hello with sizes that no sender has");
  }
  if (coming_version && *coming_version != hello->version) {
    return conflict(place + " sends version " + std::to_string(hello->version) + ", another " +
                    std::to_string(*coming_version));
  }
  coming_version = hello->version;
  coming[edge.trainer] = hello->state;
  InEdge in;
  in.edge = &edge;
  in.peer = edge.trainer;
  const uint64_t base = held[edge.trainer];
  in.whole = base == 0 || std::ranges::find(hello->bases, base) == hello->bases.end();
  in.items = items_of(*plan, edge, hello->slice_bytes);
  in.most_body_bytes = edge_bucket() + RecordHead::kBytes * in.items.size();
  for (const Item& item : in.items) {  // packed ones cannot always be cut
    in.most_body_bytes = std::max(in.most_body_bytes, item.size_bytes + RecordHead::kBytes);
  }
  (in.whole ? report->num_whole : report->num_delta) += 1;
  return in;
}

Result<std::vector<InEdge>> ShardReceiver::Impl::greet(Group* group, ShardReport* report) {
  std::vector<std::vector<uint8_t>> own, answers(edges.size(), std::vector<uint8_t>(Hello::kBytes));
  std::vector<ToRank> to;
  std::vector<FromRank> from;
  for (const ShardEdge* const edge : edges) {
    Hello hello;
    std::copy_n(plan->digest.bytes.begin(), hello.plan.size(), hello.plan.begin());
    hello.version = version.value_or(0);
    hello.bases[0] = held[edge->trainer];
    hello.bucket_bytes = edge_bucket();
    own.push_back(pack(hello));
  }
  for (size_t i = 0; i < edges.size(); ++i) {
    to.push_back({edges[i]->trainer, own[i]});
    from.push_back({edges[i]->trainer, answers[i]});
  }
  DW_RETURN_IF_ERROR(group->exchange(to, from));
  std::vector<InEdge> in;
  for (size_t i = 0; i < edges.size(); ++i) {
    if (group->is_lost(edges[i]->trainer)) continue;
    Result<InEdge> edge = begin_edge(*edges[i], answers[i], report);
    if (!edge.ok()) return group->blame(edge.status());
    in.push_back(std::move(*edge));
  }
  return in;
}

// A part of a version is none.
Status ShardReceiver::Impl::check_all_came(const Group& group) const {
  for (const ShardEdge* const edge : edges) {
    if (!group.is_lost(edge->trainer)) continue;
    return unavailable("trainer rank " + std::to_string(edge->trainer) + " is not in the group");
  }
  return {};
}

// The first one counts; what comes after it is received and dropped, so that no sender waits.
void ShardReceiver::Impl::note_failure(Status status, Status* failure) {
  if (!status.ok() && failure->ok()) *failure = std::move(status);
}

Result<std::vector<Arrived>> ShardReceiver::Impl::hear_heads(std::vector<InEdge>* in,
                                                             uint64_t round, Group* group) {
  std::vector<Arrived> arrived;
  std::vector<std::vector<uint8_t>> heads;
  for (InEdge& edge : *in) {
    if (edge.done || group->is_lost(edge.peer)) continue;
    arrived.push_back({&edge, {}, {}});
    heads.emplace_back(RoundHead::kBytes);
  }
  std::vector<FromRank> from;
  for (size_t i = 0; i < heads.size(); ++i) from.push_back({arrived[i].edge->peer, heads[i]});
  DW_RETURN_IF_ERROR(group->exchange({}, std::move(from)));
  std::vector<Arrived> here;
  for (size_t i = 0; i < arrived.size(); ++i) {
    InEdge& edge = *arrived[i].edge;
    if (group->is_lost(edge.peer)) continue;
    const std::string place = "trainer rank " + std::to_string(edge.edge->trainer);
    const Result<RoundHead> head = parse_round_head(heads[i]);
    if (!head.ok()) return group->blame(Status(head.status()).at(place));
    arrived[i].head = *head;
    if (arrived[i].head.round != round || arrived[i].head.body_bytes > edge.most_body_bytes) {
      return corruption(place + ": round " + std::to_string(arrived[i].head.round) + " of " +
                        std::to_string(arrived[i].head.body_bytes) + " bytes, expected round " +
                        std::to_string(round) + " of at most " +
                        std::to_string(edge.most_body_bytes));
    }
    arrived[i].body.resize(arrived[i].head.body_bytes);
    edge.done = arrived[i].head.last || arrived[i].head.failed;
    here.push_back(std::move(arrived[i]));
  }
  return here;
}

Status ShardReceiver::Impl::receive_rounds(std::vector<InEdge>* in, Group* group,
                                           ShardReport* report) {
  std::vector<Arrived> before, now;
  Status failure, decoded, carried;
  for (uint64_t round = 0;; ++round) {
    overlap.parallel_for(2, [&](size_t half, unsigned) {
      if (half == 1) {
        const double begin = steady_seconds();
        decoded = failure.ok() ? decode_round(*plan, read, before, &pool, &staged) : Status();
        report->read_encode_seconds += steady_seconds() - begin;
        return;
      }
      auto heads = hear_heads(in, round, group);
      carried = heads.status();
      if (!heads.ok()) return;
      now = std::move(*heads);
      std::vector<FromRank> from;
      for (Arrived& one : now) {
        if (!one.body.empty()) from.push_back({one.edge->peer, one.body});
      }
      carried = group->exchange({}, std::move(from));
    });
    note_failure(std::move(decoded), &failure);
    DW_RETURN_IF_ERROR(carried);
    if (now.empty()) break;
    for (const Arrived& one : now) {
      if (!one.head.failed) continue;
      note_failure(unavailable("trainer rank " + std::to_string(one.edge->edge->trainer) +
                               " could not send the version"),
                   &failure);
    }
    std::erase_if(now, [&](const Arrived& one) { return group->is_lost(one.edge->peer); });
    before = std::move(now);
    now.clear();
  }
  return group->blame(failure);
}

void ShardReceiver::Impl::count(ShardReport* report) const {
  for (const ShardEdge* const edge : edges) report->contents_bytes += edge->bytes;
  for (const StagedShard& shard : staged) {
    const auto& tensor = plan->tensors[shard.tensor];
    report->num_changed +=
        shard.whole ? shard.values.size() * 8 / dtype_bits(tensor.dtype) : shard.positions.size();
  }
}

Result<ShardReceiver> ShardReceiver::create(std::shared_ptr<const ShardPlan> plan, unsigned engine,
                                            ReadShard read, const ShardOptions& options) {
  auto impl = std::make_unique<Impl>(std::move(plan), engine, std::move(read), options);
  DW_ASSIGN_OR_RETURN(impl->edges, edges_of_engine(*impl->plan, engine));
  impl->options.slice_bytes = std::clamp(options.slice_bytes, kLeastSlice, kMostSlice);
  return ShardReceiver(std::move(impl));
}

Result<ShardReport> ShardReceiver::receive(Carrier& carrier) {
  return guard_memory("shards", [&]() -> Result<ShardReport> {
    Impl& self = *impl_;
    Group group(carrier, self.options.timeout_seconds);
    DW_RETURN_IF_ERROR(group.check(*self.plan, self.plan->num_trainers + self.engine));
    discarded();
    ShardReport report;
    Result<std::vector<InEdge>> greeted = self.greet(&group, &report);
    if (!greeted.ok()) discarded();  // some trainers may have said which version comes
    DW_ASSIGN_OR_RETURN(std::vector<InEdge> in, std::move(greeted));
    Status outcome = self.receive_rounds(&in, &group, &report);
    if (outcome.ok()) outcome = self.check_all_came(group);
    const std::vector<uint8_t> verdict = pack(Verdict::of(outcome));
    std::vector<ToRank> to;
    for (const InEdge& edge : in) to.push_back({edge.peer, verdict});
    const Status told = group.exchange(std::move(to), {});
    if (outcome.code() == Code::kBaseMismatch) self.held.clear();  // the next one comes whole
    if (!outcome.ok()) discarded();
    DW_RETURN_IF_ERROR(outcome);
    DW_RETURN_IF_ERROR(told);
    report.version = self.coming_version.value_or(0);
    report.lost = group.lost();
    report.sent_bytes = group.bytes_in();
    report.carry_seconds = group.seconds();
    self.count(&report);
    return report;
  });
}

const std::vector<StagedShard>& ShardReceiver::staged() const noexcept { return impl_->staged; }

void ShardReceiver::committed(bool written) {
  if (written && !impl_->has_received()) return;
  impl_->held = written ? std::move(impl_->coming) : States();
  impl_->version = written ? impl_->coming_version : std::nullopt;
  discarded();
}

void ShardReceiver::discarded() {
  impl_->staged.clear();
  impl_->coming.clear();
  impl_->coming_version.reset();
}

Status ShardReceiver::commit(std::span<const LiveTensor> pieces) {
  if (!impl_->has_received()) {
    return invalid_argument("shards: nothing was received that could be written");
  }
  DW_RETURN_IF_ERROR(write_live(*impl_->plan, impl_->staged, pieces));
  committed();
  return {};
}

Result<Proof> ShardReceiver::proof() const {
  return sum_pieces(*impl_->plan, impl_->plan->engine_sums[impl_->engine], impl_->read,
                    impl_->options);
}

ShardReceiver::ShardReceiver(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ShardReceiver::~ShardReceiver() = default;
ShardReceiver::ShardReceiver(ShardReceiver&&) noexcept = default;
ShardReceiver& ShardReceiver::operator=(ShardReceiver&&) noexcept = default;
std::optional<uint64_t> ShardReceiver::version() const noexcept { return impl_->version; }

}  // namespace deltawire
