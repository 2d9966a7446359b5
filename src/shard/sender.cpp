#include <algorithm>
#include <random>

#include "base/clock.h"
#include "base/guard.h"
#include "base/log.h"
#include "shard/encode.h"
#include "shard/group.h"
#include "shard/items.h"
#include "shard/messages.h"
#include "shard/snapshot.h"

namespace deltawire {

using namespace shard;

namespace {

// Contents that a rank codes in one round, while the round before is on its way.
constexpr uint64_t kRoundBytes = uint64_t{256} << 20;

// A round on its way.
struct Parcel {
  OutEdge* edge = nullptr;
  RoundHead head;
  std::vector<uint8_t> packed_head, body;
};

uint64_t new_state_name() {
  std::random_device random;
  const uint64_t name = uint64_t{random()} << 32 | random();
  return name == 0 ? 1 : name;
}

std::array<uint8_t, 16> plan_name(const ShardPlan& plan) {
  std::array<uint8_t, 16> name;
  std::copy_n(plan.digest.bytes.begin(), name.size(), name.begin());
  return name;
}

std::string engine_words(const OutEdge& edge) {
  return "engine rank " + std::to_string(edge.edge->engine);
}

// Bodies first get rid of what was before: what is sent is no longer needed by who encodes.
std::vector<Parcel> take_parcels(std::vector<OutEdge>* edges, const Group& group) {
  std::vector<Parcel> parcels;
  for (OutEdge& edge : *edges) {
    if (edge.done || group.is_lost(edge.peer)) continue;
    parcels.push_back({&edge, edge.head, pack(edge.head), std::move(edge.body)});
    edge.body = {};
    edge.done = edge.head.last || edge.head.failed;
  }
  return parcels;
}

Status carry(const std::vector<Parcel>& parcels, Group* group) {
  std::vector<ToRank> heads, bodies;
  for (const Parcel& parcel : parcels) {
    heads.push_back({parcel.edge->peer, parcel.packed_head});
    if (!parcel.body.empty()) bodies.push_back({parcel.edge->peer, parcel.body});
  }
  DW_RETURN_IF_ERROR(group->exchange(std::move(heads), {}));
  return group->exchange(std::move(bodies), {});
}

}  // namespace

struct ShardSender::Impl {
  std::shared_ptr<const ShardPlan> plan;
  unsigned trainer = 0;
  ReadShard read;
  ShardOptions options;
  std::vector<const ShardEdge*> edges;
  Snapshot snapshot;
  std::optional<uint64_t> version;  // of the snapshot
  ThreadPool pool, overlap{2};

  Impl(std::shared_ptr<const ShardPlan> made, unsigned rank, ReadShard reader,
       const ShardOptions& given)
      : plan(std::move(made)),
        trainer(rank),
        read(std::move(reader)),
        options(given),
        pool(given.threads) {}

  Result<std::vector<OutEdge>> greet(Group* group, uint64_t state, uint64_t to_version,
                                     ShardReport* report);
  void choose_base(const std::vector<uint64_t>& bases, const Hello& hello, OutEdge* edge,
                   ShardReport* report) const;
  Status send_rounds(std::vector<OutEdge>* out, Group* group, ShardReport* report);
  Status hear_verdicts(const std::vector<OutEdge>& out, Group* group, ShardReport* report);
  void send_failure(std::vector<OutEdge>* out, uint64_t round, Group* group);
};

// What the changes of an edge are against; without it, why the receiver gets all of its boxes.
void ShardSender::Impl::choose_base(const std::vector<uint64_t>& bases, const Hello& hello,
                                    OutEdge* edge, ShardReport* report) const {
  const uint64_t held = hello.bases[0];
  const auto found = std::find(bases.begin(), bases.end(), held);
  edge->whole = held == 0 || found == bases.end();
  edge->base = edge->whole ? 0 : held;
  (edge->whole ? report->num_whole : report->num_delta) += 1;
  if (!edge->whole) {
    if (found != bases.begin()) ++report->num_merged;
    return;
  }
  if (held == 0 && bases.empty()) return;  // a first version needs no reason
  std::string why = "it holds no version";
  if (held != 0) why = "it holds version " + std::to_string(hello.version) + ", ";
  if (held != 0 && bases.empty()) why += "and this sender has no snapshot";
  if (held != 0 && !bases.empty()) {
    why += "not " + std::to_string(version.value_or(0)) + " or one of the " +
           std::to_string(bases.size() - 1) + " before it whose changes are kept";
  }
  report->notes.push_back(engine_words(*edge) + ": whole, because " + why);
}

// Both ends say what they hold; receivers that hold a state that is known get changes.
Result<std::vector<OutEdge>> ShardSender::Impl::greet(Group* group, uint64_t state,
                                                      uint64_t to_version, ShardReport* report) {
  Hello own;
  own.plan = plan_name(*plan);
  own.version = to_version;
  own.state = state;
  const std::vector<uint64_t> bases = snapshot.states();
  std::copy(bases.begin(), bases.end(), own.bases.begin());
  own.slice_bytes = options.slice_bytes;
  const std::vector<uint8_t> words = pack(own);
  std::vector<std::vector<uint8_t>> answers(edges.size(), std::vector<uint8_t>(Hello::kBytes));
  std::vector<ToRank> to;
  std::vector<FromRank> from;
  for (size_t i = 0; i < edges.size(); ++i) {
    const unsigned peer = plan->num_trainers + edges[i]->engine;
    to.push_back({peer, words});
    from.push_back({peer, answers[i]});
  }
  DW_RETURN_IF_ERROR(group->exchange(to, from));

  std::vector<OutEdge> out;
  Status failure;
  const uint64_t share = std::max<uint64_t>(1, edges.size());
  for (size_t i = 0; i < edges.size(); ++i) {
    OutEdge edge;
    edge.number = i;
    edge.edge = edges[i];
    edge.peer = plan->num_trainers + edges[i]->engine;
    if (group->is_lost(edge.peer)) continue;
    const Result<Hello> hello = parse_hello(answers[i]);
    if (!hello.ok() || hello->plan != own.plan) {
      failure = !hello.ok()
                    ? Status(hello.status()).at(engine_words(edge))
                    : conflict(engine_words(edge) + " made another plan than trainer rank " +
                               std::to_string(trainer));
      continue;
    }
    choose_base(bases, *hello, &edge, report);
    edge.items = items_of(*plan, *edges[i], options.slice_bytes);
    edge.round_bytes =
        std::min({options.bucket_bytes / 2 / share, kRoundBytes / share, hello->bucket_bytes});
    out.push_back(std::move(edge));
  }
  if (failure.ok()) return out;
  send_failure(&out, 0, group);
  return group->blame(failure);
}

// So that nobody waits for what will not come.
void ShardSender::Impl::send_failure(std::vector<OutEdge>* out, uint64_t round, Group* group) {
  for (OutEdge& edge : *out) {
    edge.head = {};
    edge.head.round = round;
    edge.head.checksum = body_checksum({});
    edge.head.failed = true;
    edge.body.clear();
  }
  const Status told = carry(take_parcels(out, *group), group);
  if (!told.ok()) log_event(LogLevel::kDebug, "shards.not_told", {{"reason", told}});
}

Status ShardSender::Impl::send_rounds(std::vector<OutEdge>* out, Group* group,
                                      ShardReport* report) {
  EncodeReport coded;
  uint64_t round = 0;
  const auto encode = [&]() -> Status {
    const double begin = steady_seconds();
    Status status = encode_round(*plan, read, &snapshot, *out, round, &pool, &coded);
    report->read_encode_seconds += steady_seconds() - begin;
    return status;
  };
  Status encoded = encode(), carried;
  for (;;) {
    if (!encoded.ok()) {
      send_failure(out, round, group);
      return encoded;
    }
    const std::vector<Parcel> parcels = take_parcels(out, *group);
    if (parcels.empty()) break;
    const bool more =
        std::any_of(out->begin(), out->end(), [](const OutEdge& edge) { return !edge.done; });
    ++round;
    overlap.parallel_for(2, [&](size_t half, unsigned) {
      if (half == 0) carried = carry(parcels, group);
      if (half == 1 && more) encoded = encode();
    });
    DW_RETURN_IF_ERROR(carried);
  }
  report->contents_bytes = coded.contents_bytes;
  report->num_changed = coded.num_changed;
  return {};
}

Status ShardSender::Impl::hear_verdicts(const std::vector<OutEdge>& out, Group* group,
                                        ShardReport* report) {
  std::vector<std::vector<uint8_t>> answers(out.size(), std::vector<uint8_t>(Verdict::kBytes));
  std::vector<FromRank> from;
  for (size_t i = 0; i < out.size(); ++i) from.push_back({out[i].peer, answers[i]});
  DW_RETURN_IF_ERROR(group->exchange({}, std::move(from)));
  for (size_t i = 0; i < out.size(); ++i) {
    if (group->is_lost(out[i].peer)) continue;
    const Result<Verdict> verdict = parse_verdict(answers[i]);
    const Status status = verdict.ok() ? verdict->status() : verdict.status();
    if (!status.ok()) report->notes.push_back(engine_words(out[i]) + ": " + status.to_string());
  }
  return {};
}

Result<ShardSender> ShardSender::create(std::shared_ptr<const ShardPlan> plan, unsigned trainer,
                                        ReadShard read, const ShardOptions& options) {
  return guard_memory("shard sender", [&]() -> Result<ShardSender> {
    auto impl = std::make_unique<Impl>(std::move(plan), trainer, std::move(read), options);
    DW_ASSIGN_OR_RETURN(impl->edges, edges_of_trainer(*impl->plan, trainer));
    const uint64_t share = std::max<uint64_t>(1, impl->edges.size());
    impl->options.slice_bytes = std::clamp(
        std::min(options.slice_bytes, options.bucket_bytes / 2 / share), kLeastSlice, kMostSlice);
    DW_ASSIGN_OR_RETURN(impl->snapshot,
                        Snapshot::create(*impl->plan, impl->edges, impl->options.slice_bytes,
                                         options.history_bytes));
    return ShardSender(std::move(impl));
  });
}

Result<ShardReport> ShardSender::send(Carrier& carrier, uint64_t version) {
  return guard_memory("sending shards", [&]() -> Result<ShardReport> {
    Impl& self = *impl_;
    Group group(carrier, self.options.timeout_seconds);
    DW_RETURN_IF_ERROR(group.check(*self.plan, self.trainer));
    if (self.version && version <= *self.version) {
      return invalid_argument("version " + std::to_string(version) + ": version " +
                              std::to_string(*self.version) + " was sent before");
    }
    ShardReport report;
    report.version = version;
    const uint64_t state = new_state_name();
    self.snapshot.forget_notes();
    DW_ASSIGN_OR_RETURN(std::vector<OutEdge> out, self.greet(&group, state, version, &report));
    DW_RETURN_IF_ERROR(self.send_rounds(&out, &group, &report));
    DW_RETURN_IF_ERROR(self.hear_verdicts(out, &group, &report));
    report.lost = group.lost();
    report.sent_bytes = group.bytes_out();
    report.carry_seconds = group.seconds();
    const bool is_anyone_left =
        self.edges.empty() || std::any_of(out.begin(), out.end(), [&](const OutEdge& edge) {
          return !group.is_lost(edge.peer);
        });
    if (!is_anyone_left) DW_RETURN_IF_ERROR(group.failure());  // Ok: none was there from the start
    const Status advanced = self.snapshot.advance(*self.plan, self.read, state, &self.pool);
    self.version = advanced.ok() ? std::optional(version) : std::nullopt;
    if (!advanced.ok()) report.notes.push_back(advanced.to_string());
    for (const std::string& note : report.notes) {
      log_event(LogLevel::kWarning, "shards.note", {{"version", version}, {"note", note}});
    }
    return report;
  });
}

Result<Proof> ShardSender::proof() const {
  return sum_pieces(*impl_->plan, impl_->plan->trainer_sums[impl_->trainer], impl_->read,
                    impl_->options);
}

ShardSender::ShardSender(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ShardSender::~ShardSender() = default;
ShardSender::ShardSender(ShardSender&&) noexcept = default;
ShardSender& ShardSender::operator=(ShardSender&&) noexcept = default;
uint64_t ShardSender::snapshot_bytes() const noexcept { return impl_->snapshot.size_bytes(); }
std::optional<uint64_t> ShardSender::version() const noexcept { return impl_->version; }

}  // namespace deltawire
