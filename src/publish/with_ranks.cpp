// One rank of several: rank 0 leads, the others report. publish/rank_rules.h has the rules.
#include <algorithm>

#include "base/hex.h"
#include "chain/names.h"
#include "publish/impl.h"
#include "publish/ranks_boxes.h"
#include "store/bodies.h"

namespace deltawire {
namespace {

constexpr uint64_t kCacheShare = 8;  // of the memory limit

uint64_t total_bytes(const std::vector<PublishRecord>& records) {
  uint64_t bytes = 0;
  for (const PublishRecord& record : records) {
    for (const PieceRecord& piece : record.pieces) {
      bytes += tensor_size_bytes(piece.dtype, box_shape(piece.box, piece.shape)).value();
    }
  }
  return bytes;
}

// All ranks' records, rank 0's own first.
std::vector<PublishRecord> join_records(PublishRecord own, std::vector<RankReport> others) {
  std::vector<PublishRecord> records = {std::move(own)};
  for (RankReport& other : others) records.push_back(std::move(other.record));
  return records;
}

// Every tensor from the pieces of all ranks.
std::vector<WholeTensor> join_tensors(
    const std::vector<PublishRecord>& records,
    const std::vector<std::vector<std::shared_ptr<const Body>>>& contents) {
  std::map<std::string_view, WholeTensor> by_name;
  for (size_t rank = 0; rank < records.size(); ++rank) {
    for (size_t i = 0; i < records[rank].pieces.size(); ++i) {
      const PieceRecord& piece = records[rank].pieces[i];
      WholeTensor& whole = by_name[piece.tensor];
      whole.spec = {piece.tensor, piece.dtype, piece.shape};
      whole.pieces.push_back({piece.box, contents[rank][i]});
    }
  }
  std::vector<WholeTensor> wholes;
  for (auto& [name, whole] : by_name) wholes.push_back(std::move(whole));
  return wholes;
}

// Of the looks for missing reports all but one in so many trust the listing.
constexpr unsigned kLookDirectly = 8;

// What cannot be believed may be left from before the run was signed: rank 0 puts its own there.
template <class Record>
Result<std::optional<Record>> if_believed(Result<std::optional<Record>> record) {
  const bool bad = !record.ok() && (record.status().code() == Code::kCorruption ||
                                    record.status().code() == Code::kUnsupported);
  return bad ? std::optional<Record>() : std::move(record);
}

}  // namespace

// A version on its way: rank 0's own share, and what the others said of theirs.
struct Publisher::Impl::Lead {
  const RankTask& task;
  RankExchange exchange;
  RankBegin begin;
  Pacer pacer;
  Draft draft = {};
  PublishRecord own = {};
  Contents contents = {};                // of its tensors, for a version that is stored whole
  std::string full_reason = {};          // why rank 0's own changes are no delta
  uint64_t payload_bytes = 0;            // of them
  std::vector<RankReport> others = {};   // by rank, from 1 on
  std::vector<std::string> nonces = {};  // of all reports so far, by rank
  std::set<std::string> listed = {};     // reports, in this round of questions
  unsigned rounds = 0;
  bool look_directly = false;
  double waiting = 0;
  PublishReport report = {};
};

Result<PublishReport> Publisher::Impl::publish_with_others(const RankTask& task) {
  return options.ranks.rank == 0 ? lead(task) : report_to_lead(task);
}

Status Publisher::Impl::prepare_delta(Lead* lead) {
  const Tensors tensors = lead->task.tensors;
  DW_RETURN_IF_ERROR(ensure_snapshot(tensors));
  lead->draft = begin_delta(tensors, false, lead->task.clock);
  lead->draft.sides = lead->task.source.sides;
  DW_ASSIGN_OR_RETURN(StateDiff diff, this->diff(tensors, UINT64_MAX, lead->task.clock,
                                                 &lead->draft, &lead->report));
  lead->draft.pieces = diff.record.pieces;
  lead->own = std::move(diff.record);
  lead->full_reason = diff.needs_full;
  lead->payload_bytes = diff.payload_bytes;
  return {};
}

Status Publisher::Impl::prepare_full(Lead* lead) {
  lead->draft.abandon();
  lead->draft = {};
  lead->draft.sides = lead->task.source.sides;
  const double started = lead->task.clock.now();
  lead->contents = contents_of(lead->task.tensors, device.get());
  DW_ASSIGN_OR_RETURN(lead->own,
                      hash_contents(lead->task.tensors, lead->contents, parent(), &pool));
  lead->report.phases.push_back({"hash", started, lead->task.clock.now()});
  lead->draft.pieces = lead->own.pieces;
  return {};
}

Result<ranks::Decision> Publisher::Impl::decide_delta(Lead* lead) {
  Draft& draft = lead->draft;
  std::string& full_reason = lead->begin.reason;
  full_reason = lead->full_reason;
  uint64_t payload_bytes = lead->payload_bytes;
  for (const RankReport& other : lead->others) {
    if (full_reason.empty()) full_reason = other.needs_full;
    payload_bytes += other.payload_bytes;
  }
  const std::vector<PublishRecord> records =
      join_records(std::move(lead->own), std::move(lead->others));
  const uint64_t model_bytes = total_bytes(records);
  if (full_reason.empty() && double(payload_bytes) > kDenseShare * double(model_bytes)) {
    full_reason = dense_reason(payload_bytes, model_bytes);
  }
  if (!full_reason.empty()) return ranks::Decision::kFull;

  DW_ASSIGN_OR_RETURN(draft.state, join(records, lead->task.source));
  if (draft.state.unchanged) return ranks::Decision::kUnchanged;
  DW_RETURN_IF_ERROR(draft.stream->finish(draft.state.change.removed));
  add_phase(draft.stream->upload_phase(), &lead->report);
  learn(draft);
  draft.manifest.kind = VersionKind::kDelta;
  draft.manifest.base = head->manifest.version;
  draft.manifest.parts = draft.stream->parts();
  for (size_t rank = 1; rank < records.size(); ++rank) {
    const auto& parts = records[rank].parts;
    draft.manifest.parts.insert(draft.manifest.parts.end(), parts.begin(), parts.end());
  }
  return ranks::Decision::kCommit;
}

Result<ranks::Decision> Publisher::Impl::decide_full(Lead* lead) {
  Draft& draft = lead->draft;
  const RankTask& task = lead->task;
  std::vector<Contents> contents = {lead->contents};
  const auto cache =
      std::make_shared<BlockCache>(*store, options.limits.memory_bytes / kCacheShare);
  for (const RankReport& other : lead->others) {
    contents.push_back(boxes_in_object(other.record.pieces,
                                       {boxes_name(other.of, other.rank), other.boxes}, cache));
  }
  const std::vector<PublishRecord> records =
      join_records(std::move(lead->own), std::move(lead->others));
  DW_ASSIGN_OR_RETURN(draft.state, join(records, task.source));
  if (draft.state.unchanged) return ranks::Decision::kUnchanged;
  FullSource joined;
  joined.weights = [&](const Contents&) {
    return lay_out_checkpoint(join_tensors(records, contents));
  };
  joined.sides = task.source.sides;
  DW_ASSIGN_OR_RETURN(std::vector<FullFile> files, joined.files({}, pack()));
  draft.upload =
      std::make_unique<FullUpload>(*store, full_folder(next_version(), lead->begin.of.attempt),
                                   std::move(files), task.clock, options.progress);
  DW_ASSIGN_OR_RETURN(draft.manifest.parts, draft.upload->finish());
  if (Status status = draft.sides->check_copies(draft.manifest.parts); !status.ok()) {
    draft.abandon();
    return status;
  }
  add_phase(draft.upload->upload_phase(), &lead->report);
  learn(draft);
  draft.manifest.kind = VersionKind::kFull;
  draft.manifest.reason = lead->begin.reason;
  return ranks::Decision::kCommit;
}

// One report, or that it is not there yet.
Result<bool> Publisher::Impl::hear(unsigned rank, Lead* lead) {
  const RankBegin& begin = lead->begin;
  const bool listed = lead->listed.contains(report_name(begin.of, rank, begin.full));
  if (!listed && !lead->look_directly) return false;
  DW_ASSIGN_OR_RETURN(std::optional<RankReport> report,
                      lead->exchange.read_report(begin.of, rank, begin.full));
  if (!report) return false;
  if (!report->failure.empty()) {
    return Status(Code::kCancelled, "rank " + std::to_string(rank) + " (" + report->publisher +
                                        ") failed: " + report->failure);
  }
  lead->nonces[rank] = report->nonce;
  lead->others[rank - 1] = std::move(*report);
  return true;
}

// A new round of questions to all who are missing.
Status Publisher::Impl::look_around(Lead* lead) {
  lead->look_directly = lead->rounds++ % kLookDirectly == 0;
  if (lead->look_directly) return {};
  DW_ASSIGN_OR_RETURN(lead->listed, lead->exchange.listed(lead->begin.of));
  return {};
}

ranks::Leader Publisher::Impl::answer(ranks::Leader leader, Lead* lead) {
  using Ask = ranks::Leader::Ask;
  const RankExchange& exchange = lead->exchange;
  const auto failed = [&](const auto& result) {
    return ranks::failed(std::move(leader), Status(result.status()));
  };
  switch (leader.ask) {
    case Ask::kPutEnd: {
      RankDone done{lead->begin.of, leader.ending, leader.why, {}};
      done.of.attempt = leader.about;
      done.of.step = leader.about_step;
      if (leader.about == leader.attempt) done.nonces = lead->nonces;
      return put_end(std::move(leader), exchange.put_done(done));
    }
    case Ask::kReadBegin: {
      const Result<std::optional<std::string>> text = exchange.begin_text();
      if (!text.ok()) return failed(text);
      std::optional<ranks::AttemptSeen> seen;
      if (*text) {
        const Result<RankBegin> begin = exchange.read_begin(**text);
        if (begin.ok()) seen = {begin->of.attempt, begin->of.step, begin->full};
      }
      return read_begin(std::move(leader), seen);
    }
    case Ask::kReadEnd: {
      const auto done = if_believed(exchange.read_done(leader.about));
      if (!done.ok()) return failed(done);
      std::optional<ranks::EndSeen> end;
      if (*done) end = {(*done)->ending, false, (*done)->failure};
      return read_end(std::move(leader), end);
    }
    case Ask::kPutBegin:
      if (!leader.announced) exchange.remove_reports();
      lead->begin.full = leader.full;
      return put_begin(std::move(leader), exchange.put_begin(lead->begin));
    case Ask::kPrepare: {
      Status status = lead->task.unfit;
      if (status.ok()) status = lead->begin.full ? prepare_full(lead) : prepare_delta(lead);
      if (!status.ok()) return ranks::failed(std::move(leader), std::move(status));
      lead->others.assign(options.ranks.world - 1, {});
      lead->nonces.assign(options.ranks.world, lead->begin.of.attempt);
      lead->waiting = lead->task.clock.now();
      lead->rounds = 0;
      lead->pacer.start_over();
      status = look_around(lead);
      if (!status.ok()) return ranks::failed(std::move(leader), std::move(status));
      return prepared(std::move(leader));
    }
    case Ask::kReadReport: {
      const Result<bool> there = hear(leader.about_rank, lead);
      return there.ok() ? read_report(std::move(leader), *there) : failed(there);
    }
    case Ask::kReadManifest: {
      if (!lead->look_directly) return read_manifest(std::move(leader), false);
      const auto record = exchange.read_manifest();
      return record.ok() ? read_manifest(std::move(leader), record->has_value()) : failed(record);
    }
    case Ask::kPause: {
      const ranks::Pause how = lead->pacer.pause();
      Status status = how == ranks::Pause::kGoOn ? look_around(lead) : Status();
      if (!status.ok()) return ranks::failed(std::move(leader), std::move(status));
      return paused(std::move(leader), how, options.ranks.timeout_seconds);
    }
    case Ask::kDecide: {
      lead->report.phases.push_back({"wait for ranks", lead->waiting, lead->task.clock.now()});
      const Result<ranks::Decision> decision =
          lead->begin.full ? decide_full(lead) : decide_delta(lead);
      return decision.ok() ? decided(std::move(leader), *decision) : failed(decision);
    }
    case Ask::kCommit: {
      lead->draft.manifest.attempt = leader.attempt;
      Status status = commit(&lead->draft, &lead->task.source, lead->task.clock, &lead->report);
      if (status.ok()) return committed(std::move(leader));
      return uncertain ? may_be_committed(std::move(leader), std::move(status))
                       : ranks::failed(std::move(leader), std::move(status));
    }
    case Ask::kOver:
      break;
  }
  return leader;
}

Result<PublishReport> Publisher::Impl::lead(const RankTask& task) {
  DW_RETURN_IF_ERROR(check_free());
  const uint64_t version = next_version();
  const std::string reason = why_whole();
  const bool full = !reason.empty();
  const RankAttempt of{chain->run(), version, random_hex(kAttemptDigits), task.step,
                       options.ranks.world};
  Lead lead{task, RankExchange(*chain, version, options.ranks.world, rank_keys),
            RankBegin{of, full, reason}, Pacer(options)};
  std::optional<ranks::Leader::Open> open;
  if (open_attempt && open_attempt->first == version) open = open_attempt->second;
  ranks::Leader leader =
      ranks::start_leading(version, task.step, options.ranks.world, of.attempt, full, open);
  while (leader.ask != ranks::Leader::Ask::kOver) leader = answer(std::move(leader), &lead);
  open_attempt.reset();
  if (leader.open) open_attempt = {version, *leader.open};

  PublishReport& report = lead.report;
  if (leader.verdict == ranks::Leader::Verdict::kFailed) return std::move(leader.failure);
  describe_state(lead.draft.state, &report);
  report.committed = leader.verdict == ranks::Leader::Verdict::kCommitted;
  if (!report.committed) {
    static_cast<Identity&>(report) = head->identity();
    return report;
  }
  describe_head(&report);
  notice_float32(task.tensors, &report);
  advance(task.tensors, true, lead.draft, task.clock, &report);
  lead.exchange.clean_up();
  return report;
}

}  // namespace deltawire
