// One rank of several. All ranks make the same exchanges. An error between two exchanges is sent
// with the next one, so that no rank waits for ever. The rules are in docs/protocol.md, "Ranks".
#include "base/bytes.h"
#include "base/guard.h"
#include "base/sync_point.h"
#include "chain/names.h"
#include "publish/impl.h"
#include "publish/ranks.h"
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

// All tensors, from the pieces of all ranks.
std::vector<WholeTensor> join_tensors(const std::vector<PublishRecord>& records,
                                      const std::vector<Contents>& contents) {
  std::vector<WholeTensor> wholes;
  for (size_t rank = 0; rank < records.size(); ++rank) {
    for (size_t i = 0; i < records[rank].pieces.size(); ++i) {
      const PieceRecord& piece = records[rank].pieces[i];
      wholes.push_back({piece, {{piece.box, contents[rank][i]}}});
    }
  }
  return wholes;
}

}  // namespace

// This rank's share of a version in preparation.
struct Publisher::Impl::Share {
  const FullSource& source;
  Attempt& attempt;
  Store& store;
  RankBegin begin = {};
  RankReport own = {};
  Contents contents = {};  // of a version stored whole
  std::string boxes = {};  // the object for rank 0, removed at the end
  bool committed = false;  // by this process, which is rank 0

  ~Share() {
    if (!boxes.empty()) (void)store.remove(boxes);
  }
};

// Only rank 0 reads the head, so that all ranks use the same.
Result<std::string> Publisher::Impl::begin_as_rank(const Attempt& attempt) {
  DW_RETURN_IF_ERROR(Status(attempt.unfit));
  if (options.ranks.rank != 0) return std::string();
  DW_RETURN_IF_ERROR(check_free());
  RankBegin begin{chain->run(), random_hex(kAttemptDigits), {}, {}, why_whole()};
  if (head) {
    begin.base = head->manifest.version;
    begin.base_manifest = head->digest;
  }
  return to_text(begin);
}

// Brings another rank to the base that rank 0 uses.
Status Publisher::Impl::take_base(const RankBegin& begin) {
  if (!chain) {
    DW_ASSIGN_OR_RETURN(chain, open_with_keys(store, keys));
  } else if (uncertain) {
    DW_RETURN_IF_ERROR(check_run());
  }
  const std::string rank = "rank " + std::to_string(options.ranks.rank);
  if (chain->run() != begin.run) {
    return base_mismatch(store->url() + ": " + rank + " finds run " + chain->run() +
                         ", rank 0 publishes to run " + begin.run);
  }
  const bool same = begin.base ? head && head->digest == *begin.base_manifest : !head;
  if (!same) {
    if (head && (!begin.base || *begin.base <= head->manifest.version)) {
      const std::string base = begin.base ? "version " + std::to_string(*begin.base) +
                                                " with manifest " + begin.base_manifest->hex()
                                          : "no version";
      return base_mismatch(store->url() + ": " + rank + " is at version " +
                           std::to_string(head->manifest.version) + " with manifest " +
                           head->digest.hex() + ", rank 0 publishes on top of " + base);
    }
    snapshot = nullptr;
    DW_RETURN_IF_ERROR(take_version(*begin.base, *begin.base_manifest));
  }
  uncertain = false;
  return {};
}

// Makes a version named by rank 0 the head.
Status Publisher::Impl::take_version(uint64_t version, const Digest& manifest) {
  DW_ASSIGN_OR_RETURN(VersionRecord record, chain->version(version));
  if (record.digest != manifest) {
    return base_mismatch(store->url() + ": the manifest of version " + std::to_string(version) +
                         " is " + record.digest.hex() + ", that of rank 0 is " + manifest.hex());
  }
  Schema next = schema;
  if (!head || record.manifest.schema != head->manifest.schema) {
    DW_ASSIGN_OR_RETURN(next, chain->schema(record.manifest));
  }
  DW_RETURN_IF_ERROR(states_of(next, record.manifest).status());
  head = std::move(record);
  schema = std::move(next);
  return {};
}

Status Publisher::Impl::share_delta(Share* share) {
  Attempt& attempt = share->attempt;
  DW_RETURN_IF_ERROR(ensure_snapshot(attempt.tensors));
  attempt.draft = begin_delta(attempt.tensors, false, attempt.clock);
  attempt.draft.sides = share->source.sides;
  DW_ASSIGN_OR_RETURN(StateDiff diff, this->diff(attempt.tensors, UINT64_MAX, attempt.clock,
                                                 &attempt.draft, &attempt.report));
  share->own = {std::move(diff.needs_full), diff.payload_bytes, {}, {}};
  if (!share->own.needs_full.empty()) return {};
  share->own.record.pieces = std::move(diff.pieces);
  attempt.draft.pieces = share->own.record.pieces;
  // the last part of rank 0 names the tensors removed by any rank
  if (options.ranks.rank == 0) return {};
  DW_RETURN_IF_ERROR(attempt.draft.stream->finish({}));
  add_phase(attempt.draft.stream->upload_phase(), &attempt.report);
  share->own.record.parts = attempt.draft.stream->parts();
  return {};
}

Status Publisher::Impl::share_full(Share* share) {
  Attempt& attempt = share->attempt;
  attempt.draft = {};
  attempt.draft.sides = share->source.sides;
  share->own = {};
  const double hashing = attempt.clock.now();
  share->contents = contents_of(attempt.tensors, device.get());
  DW_ASSIGN_OR_RETURN(share->own.record.pieces,
                      hash_contents(attempt.tensors, share->contents, parent(), &pool));
  attempt.report.phases.push_back({"hash", hashing, attempt.clock.now()});
  attempt.draft.pieces = share->own.record.pieces;
  if (options.ranks.rank == 0) return {};
  const double uploading = attempt.clock.now();
  DW_SYNC_POINT("ranks: before boxes");
  const JoinedBody joined(share->contents);
  SealingBody sealing(joined, share->own.record.pieces);
  share->boxes = boxes_name(next_version(), share->begin.attempt, options.ranks.rank);
  DW_RETURN_IF_ERROR(store->put(share->boxes, sealing));
  DW_ASSIGN_OR_RETURN(share->own.boxes, sealing.seal());
  attempt.report.phases.push_back({"upload", uploading, attempt.clock.now()});
  return {};
}

Result<std::string> Publisher::Impl::report_as_rank(Share* share) {
  if (options.ranks.rank != 0) DW_RETURN_IF_ERROR(take_base(share->begin));
  const bool full = !share->begin.full_reason.empty();
  DW_RETURN_IF_ERROR(full ? share_full(share) : share_delta(share));
  return options.ranks.rank == 0 ? std::string() : to_text(share->own);
}

// ---- rank 0

Result<std::string> Publisher::Impl::decide(const std::vector<std::string>& texts, Share* share) {
  std::vector<RankReport> reports = {std::move(share->own)};
  for (size_t rank = 1; rank < texts.size(); ++rank) {
    Result<RankReport> report = parse_report(texts[rank]);
    if (!report.ok()) {
      return std::move(report).status().at("report of rank " + std::to_string(rank));
    }
    reports.push_back(std::move(*report));
  }
  RankOutcome outcome;
  if (share->begin.full_reason.empty()) {
    DW_ASSIGN_OR_RETURN(outcome.full_reason, join_delta(std::move(reports), share));
  } else {
    DW_RETURN_IF_ERROR(join_full(std::move(reports), share));
  }
  if (!outcome.full_reason.empty() || share->attempt.draft.state.unchanged) return to_text(outcome);
  DW_RETURN_IF_ERROR(
      commit(&share->attempt.draft, &share->source, share->attempt.clock, &share->attempt.report));
  share->committed = true;
  outcome.committed = head->digest;
  return to_text(outcome);
}

// The reason why the changes cannot be a delta; empty: they can.
Result<std::string> Publisher::Impl::join_delta(std::vector<RankReport> reports, Share* share) {
  Draft& draft = share->attempt.draft;
  uint64_t payload_bytes = 0;
  std::vector<PublishRecord> records;
  for (RankReport& report : reports) {
    if (!report.needs_full.empty()) return report.needs_full;
    payload_bytes += report.payload_bytes;
    records.push_back(std::move(report.record));
  }
  const uint64_t model_bytes = total_bytes(records);
  if (double(payload_bytes) > kDenseShare * double(model_bytes)) {
    return dense_reason(payload_bytes, model_bytes);
  }
  DW_ASSIGN_OR_RETURN(draft.state, join(records, share->source));
  if (draft.state.unchanged) return std::string();
  DW_RETURN_IF_ERROR(draft.stream->finish(draft.state.change.removed));
  add_phase(draft.stream->upload_phase(), &share->attempt.report);
  draft.manifest.kind = VersionKind::kDelta;
  draft.manifest.base = head->manifest.version;
  draft.manifest.parts = draft.stream->parts();
  for (const PublishRecord& record : records) {
    draft.manifest.parts.insert(draft.manifest.parts.end(), record.parts.begin(),
                                record.parts.end());
  }
  return std::string();
}

Status Publisher::Impl::join_full(std::vector<RankReport> reports, Share* share) {
  Draft& draft = share->attempt.draft;
  const std::string& attempt = share->begin.attempt;
  const auto cache =
      std::make_shared<BlockCache>(*store, options.limits.memory_bytes / kCacheShare);
  std::vector<PublishRecord> records;
  std::vector<Contents> contents = {share->contents};
  for (unsigned rank = 0; rank < reports.size(); ++rank) {
    RankReport& report = reports[rank];
    if (rank != 0) {
      contents.push_back(boxes_in_object(
          report.record.pieces,
          {boxes_name(next_version(), attempt, rank), std::move(report.boxes)}, cache));
    }
    records.push_back(std::move(report.record));
  }
  DW_ASSIGN_OR_RETURN(draft.state, join(records, share->source));
  if (draft.state.unchanged) return {};
  FullSource joined;
  joined.weights = [&](const Contents&) {
    return lay_out_checkpoint(join_tensors(records, contents));
  };
  joined.sides = draft.sides;
  DW_ASSIGN_OR_RETURN(std::vector<FullFile> files, joined.files({}, pack()));
  draft.upload =
      std::make_unique<FullUpload>(*store, full_folder(next_version(), attempt), std::move(files),
                                   share->attempt.clock, options.progress);
  return draft.finish_upload(share->begin.full_reason, &share->attempt.report);
}

// ---- all of them

Result<RankOutcome> Publisher::Impl::agree(Share* share) {
  RankExchange ranks(options.ranks, share->attempt.step);
  // If the group fails, rank 0 may still use the objects of the other ranks.
  const auto failed = [&](Status status) -> Status {
    if (ranks.all_know() || options.ranks.rank == 0) return status;
    share->boxes.clear();
    return std::move(status).at("version " + std::to_string(next_version()) +
                                " may or may not be committed; the next publish finds out");
  };
  const auto own_begin = guard_memory("publish", [&] { return begin_as_rank(share->attempt); });
  DW_ASSIGN_OR_RETURN(const std::vector<std::string> begins, ranks.exchange("begin", own_begin));
  DW_ASSIGN_OR_RETURN(share->begin, parse_begin(begins[0]));
  for (;;) {
    const std::string mode = share->begin.full_reason.empty() ? "delta" : "whole version";
    const auto own = guard_memory("publish", [&] { return report_as_rank(share); });
    const double waiting = share->attempt.clock.now();
    const auto reports = ranks.exchange(mode, own);
    share->attempt.report.phases.push_back({"wait for ranks", waiting, share->attempt.clock.now()});
    if (!reports.ok() && ranks.all_know()) share->attempt.draft.abandon();
    if (!reports.ok()) return own.ok() ? failed(reports.status()) : own.status();
    const auto decided = guard_memory("publish", [&]() -> Result<std::string> {
      return options.ranks.rank == 0 ? decide(*reports, share) : std::string();
    });
    const auto outcomes = ranks.exchange("outcome of the " + mode, decided);
    if (!outcomes.ok()) return failed(outcomes.status());
    DW_ASSIGN_OR_RETURN(RankOutcome outcome, parse_outcome((*outcomes)[0]));
    if (outcome.full_reason.empty()) return outcome;
    share->attempt.draft.abandon();
    share->begin.full_reason = std::move(outcome.full_reason);
  }
}

Status Publisher::Impl::publish_as_rank(const FullSource& source, Attempt* attempt) {
  const bool first = options.ranks.rank == 0;
  Share share{source, *attempt, *store};
  PublishReport& report = attempt->report;
  Result<RankOutcome> outcome = agree(&share);
  if (!outcome.ok()) {
    if (!share.committed) return std::move(outcome).status();
    snapshot = nullptr;  // it is one version behind
    return std::move(outcome).status().at("version " + std::to_string(head->manifest.version) +
                                          " is committed, but the other ranks may not know it");
  }
  report.committed = outcome->committed.has_value();
  if (first) describe_state(attempt->draft.state, &report);
  if (!report.committed) {
    static_cast<Identity&>(report) = head->identity();
    return {};
  }
  if (!first) {
    const std::optional<Schema> before = head ? std::optional(schema) : std::nullopt;
    DW_RETURN_IF_ERROR(take_version(next_version(), *outcome->committed)
                           .at("rank 0 has committed version " + std::to_string(next_version())));
    if (before) describe_change(compare_schemas(*before, schema), &report);
    report.num_tensors = schema.tensors.size();
    report.num_elements = head->manifest.elements;
    report.num_changed = head->manifest.changed;
  }
  describe_head(&report);
  if (first) notice_dense(attempt->tensors, &report);
  advance(attempt->tensors, true, attempt->draft, attempt->clock, &report);
  return {};
}

}  // namespace deltawire
