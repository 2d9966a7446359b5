// One rank of several: rank 0 leads, the others follow. sync/publisher/ranks.h has the rules.
#include <algorithm>

#include "base/sync_point.h"
#include "chain/names.h"
#include "sync/publisher/bodies.h"
#include "sync/publisher/impl.h"
#include "sync/publisher/ranks_boxes.h"
#include "tensor/text.h"

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

// Objects that a rank says are its parts end up in a manifest: they must lie where parts may.
Status check_reported_parts(const RankReport& report, uint64_t version) {
  const std::string prefix = part_folder(version, "");
  for (const PartRef& part : report.record.parts) {
    DW_RETURN_IF_ERROR(check_object_name(part.name));
    if (!part.name.starts_with(prefix.substr(0, prefix.size() - 1))) {
      return corruption("rank " + std::to_string(report.rank) + ": part " + part.name +
                        " is not of version " + std::to_string(version));
    }
  }
  return {};
}

// All ranks' records, rank 0's own first, and whose reports they were.
std::vector<PublishRecord> join_records(PublishRecord own, std::vector<RankReport> others,
                                        const std::string& nonce, RankDone* done) {
  std::vector<PublishRecord> records = {std::move(own)};
  done->nonces = {nonce};
  for (RankReport& other : others) {
    done->nonces.push_back(other.nonce);
    records.push_back(std::move(other.record));
  }
  return records;
}

// Every tensor from the pieces of all ranks.
std::vector<WholeTensor> join_tensors(const std::vector<PublishRecord>& records,
                                      const std::vector<Contents>& contents) {
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

void describe_state_in(const NewState& state, PublishReport* report) {
  report->num_tensors = state.schema.tensors.size();
  report->num_changed_tensors = state.num_changed_tensors;
  report->num_elements = state.num_elements;
  report->num_changed = state.num_changed;
}

}  // namespace

Result<PublishReport> Publisher::Impl::publish_with_others(Tensors tensors,
                                                           const FullSource& source,
                                                           PublishClock clock) {
  return options.rank == 0 ? lead(tensors, source, clock) : follow(tensors, clock);
}

// ---- rank 0

Result<Draft> Publisher::Impl::lead_delta(Tensors tensors, RankExchange* exchange,
                                          const RankBegin& begin, PublishClock clock,
                                          std::string* full_reason, RankDone* done,
                                          PublishReport* report) {
  DW_RETURN_IF_ERROR(ensure_snapshot(tensors));
  Draft draft = begin_delta(tensors, false, clock);
  const double started = clock.now();
  DW_ASSIGN_OR_RETURN(StateDiff diff,
                      diff_state(diff_job(tensors, UINT64_MAX, &draft), &pool, draft.stream.get()));
  report->phases.push_back({"diff+encode", started, clock.now()});
  draft.pieces = diff.record.pieces;

  const double waiting = clock.now();
  DW_ASSIGN_OR_RETURN(std::vector<RankReport> others, exchange->collect(begin));
  report->phases.push_back({"wait for ranks", waiting, clock.now()});
  uint64_t payload_bytes = diff.payload_bytes;
  *full_reason = diff.needs_full;
  for (const RankReport& other : others) {
    DW_RETURN_IF_ERROR(check_reported_parts(other, next_version()));
    if (full_reason->empty()) *full_reason = other.needs_full;
    payload_bytes += other.payload_bytes;
  }
  const std::vector<PublishRecord> records =
      join_records(std::move(diff.record), std::move(others), begin.attempt, done);
  const uint64_t model_bytes = total_bytes(records);
  if (full_reason->empty() && double(payload_bytes) > kDenseShare * double(model_bytes)) {
    *full_reason = dense_reason(payload_bytes, model_bytes);
  }
  if (!full_reason->empty()) return draft;

  DW_ASSIGN_OR_RETURN(draft.state, join_pieces(records, parent()));
  DW_RETURN_IF_ERROR(draft.stream->finish(draft.state.removed));
  add_phase(draft.stream->upload_phase(), report);
  draft.manifest.kind = VersionKind::kDelta;
  draft.manifest.base = head->manifest.version;
  draft.manifest.parts = draft.stream->parts();
  for (size_t rank = 1; rank < records.size(); ++rank) {
    const auto& parts = records[rank].parts;
    draft.manifest.parts.insert(draft.manifest.parts.end(), parts.begin(), parts.end());
  }
  return draft;
}

Result<Draft> Publisher::Impl::lead_full(Tensors tensors, const FullSource& source,
                                         RankExchange* exchange, const RankBegin& begin,
                                         PublishClock clock, RankDone* done,
                                         PublishReport* report) {
  Draft draft;
  const double started = clock.now();
  std::vector<Contents> contents = {contents_of(tensors, device.get())};
  DW_ASSIGN_OR_RETURN(PublishRecord own,
                      hash_contents(tensors, contents[0], parent(), digest_kind(), &pool));
  report->phases.push_back({"hash", started, clock.now()});
  draft.pieces = own.pieces;
  const double waiting = clock.now();
  DW_ASSIGN_OR_RETURN(std::vector<RankReport> others, exchange->collect(begin));
  report->phases.push_back({"wait for ranks", waiting, clock.now()});

  const auto cache = std::make_shared<BlockCache>(*store, options.memory_limit / kCacheShare);
  for (const RankReport& other : others) {
    contents.push_back(boxes_in_object(
        other.record.pieces, boxes_name(begin.version, begin.attempt, other.rank), cache));
  }
  const std::vector<PublishRecord> records =
      join_records(std::move(own), std::move(others), begin.attempt, done);
  DW_ASSIGN_OR_RETURN(draft.state, join_pieces(records, parent()));
  if (draft.state.unchanged) return draft;
  const FullSource joined{
      [&](const Contents&) { return lay_out_checkpoint(join_tensors(records, contents)); },
      source.extra_files};
  DW_ASSIGN_OR_RETURN(std::vector<FullFile> files, joined.files({}));
  draft.upload = std::make_unique<FullUpload>(*store, full_folder(begin.version, begin.attempt),
                                              std::move(files), clock, options.progress);
  DW_ASSIGN_OR_RETURN(draft.manifest.parts, draft.upload->finish());
  add_phase(draft.upload->upload_phase(), report);
  draft.manifest.kind = VersionKind::kFull;
  draft.manifest.reason = begin.reason;
  return draft;
}

Result<PublishReport> Publisher::Impl::lead(Tensors tensors, const FullSource& source,
                                            PublishClock clock) {
  PublishReport report;
  RankExchange exchange(*chain, next_version(), options);
  RankBegin begin{
      chain->run(),  next_version(),        random_hex(kAttemptDigits),
      options.world, !head || options.full, !head ? "seed" : options.full ? "mode" : ""};
  RankDone done;
  const auto attempt = [&]() -> Result<Draft> {
    DW_RETURN_IF_ERROR(exchange.announce(begin));
    if (!begin.full) {
      std::string full_reason;
      DW_ASSIGN_OR_RETURN(
          Draft draft, lead_delta(tensors, &exchange, begin, clock, &full_reason, &done, &report));
      if (full_reason.empty()) return draft;
      draft.abandon();
      begin.attempt = random_hex(kAttemptDigits);
      begin.full = true;
      begin.reason = full_reason;
      DW_RETURN_IF_ERROR(exchange.announce(begin));
    }
    return lead_full(tensors, source, &exchange, begin, clock, &done, &report);
  };
  Result<Draft> draft = attempt();
  Status status = draft.ok() ? Status() : draft.status();
  if (status.ok()) {
    describe_state_in(draft->state, &report);
    report.committed = !draft->state.unchanged;
    if (draft->state.unchanged) {
      done.unchanged = true;
      exchange.end(begin, done);
      report.version = head->manifest.version;
      return report;
    }
    status = commit(&*draft, &source, clock, &report);
  }
  if (!status.ok()) {
    done.failure = status.to_string();
    // While the version may yet appear nobody may be told that it will not.
    if (!uncertain) exchange.end(begin, done);
    return status;
  }
  describe_head(&report);
  advance(tensors, *draft, clock, &report);
  exchange.clean_up();
  return report;
}

// ---- the others

Result<RankReport> Publisher::Impl::report_delta(Tensors tensors, PublishClock clock, Draft* draft,
                                                 PublishReport* report) {
  RankReport own;
  DW_RETURN_IF_ERROR(ensure_snapshot(tensors));
  *draft = begin_delta(tensors, false, clock);
  const double started = clock.now();
  DW_ASSIGN_OR_RETURN(StateDiff diff,
                      diff_state(diff_job(tensors, UINT64_MAX, draft), &pool, draft->stream.get()));
  report->phases.push_back({"diff+encode", started, clock.now()});
  own.needs_full = diff.needs_full;
  own.payload_bytes = diff.payload_bytes;
  if (!own.needs_full.empty()) return own;
  own.record = std::move(diff.record);
  draft->pieces = own.record.pieces;
  DW_RETURN_IF_ERROR(draft->stream->finish({}));
  add_phase(draft->stream->upload_phase(), report);
  own.record.parts = draft->stream->parts();
  return own;
}

Result<RankReport> Publisher::Impl::report_full(Tensors tensors, const RankBegin& begin,
                                                PublishClock clock, Draft* draft,
                                                PublishReport* report) {
  RankReport own;
  if (draft->stream) draft->stream->abandon();  // a delta is not wanted
  draft->kept.reset();
  const double started = clock.now();
  Contents boxes = contents_of(tensors, device.get());
  DW_ASSIGN_OR_RETURN(own.record, hash_contents(tensors, boxes, parent(), digest_kind(), &pool));
  report->phases.push_back({"hash", started, clock.now()});
  draft->pieces = own.record.pieces;
  const double uploading = clock.now();
  DW_SYNC_POINT("ranks: before boxes");
  DW_RETURN_IF_ERROR(store->put(boxes_name(begin.version, begin.attempt, options.rank),
                                JoinedBody(std::move(boxes))));
  report->phases.push_back({"upload", uploading, clock.now()});
  return own;
}

// The version that rank 0 has committed becomes the head, if it has this rank's pieces as they are.
Status Publisher::Impl::take_over(VersionRecord record, const std::vector<PieceRecord>& pieces) {
  const Manifest& manifest = record.manifest;
  Schema next = schema;
  if (!head || manifest.schema != head->manifest.schema) {
    DW_ASSIGN_OR_RETURN(next, chain->schema(manifest));
  }
  DW_RETURN_IF_ERROR(states_of(next, manifest).status());
  const ParentState now{&manifest, &next};
  for (const PieceRecord& piece : pieces) {
    const TensorView form{piece.tensor, piece.dtype, piece.shape, {}};
    const std::optional<Digest> digest = known_digest(now, form, piece.box);
    if (digest && *digest == piece.digest) continue;
    // Boxes of a tensor that did not change are not told anew.
    const std::optional<Digest> before = tensor_digest_in(parent(), form);
    if (!piece.changed && before && before == tensor_digest_in(now, form)) continue;
    return conflict(store->url() + ": version " + std::to_string(manifest.version) + " of " +
                    manifest.publisher + " at " + manifest.created + " does not have tensor " +
                    quote(piece.tensor) + " as rank " + std::to_string(options.rank) +
                    " published it");
  }
  head = std::move(record);
  schema = std::move(next);
  return {};
}

Result<PublishReport> Publisher::Impl::follow(Tensors tensors, PublishClock clock) {
  PublishReport report;
  RankExchange exchange(*chain, next_version(), options);
  const std::string nonce = random_hex(kAttemptDigits);
  Draft draft;
  std::optional<Result<RankReport>> delta;  // made once, whatever the number of attempts
  if (head && !options.full) delta = report_delta(tensors, clock, &draft, &report);

  RankReport reported;
  std::string current;
  while (true) {
    DW_ASSIGN_OR_RETURN(RankEvent event, exchange.wait(current, past_attempts));
    past_attempts.insert(event.attempt);
    if (event.begin) {
      const RankBegin& begin = *event.begin;
      current = event.attempt;
      if (!begin.full && !delta) delta = report_delta(tensors, clock, &draft, &report);
      Result<RankReport> own =
          begin.full ? report_full(tensors, begin, clock, &draft, &report) : *delta;
      const Status failure = own.ok() ? Status() : own.status();
      reported = own.ok() ? std::move(*own) : RankReport{};
      reported.failure = failure.ok() ? "" : failure.to_string();
      reported.rank = options.rank;
      reported.nonce = nonce;
      reported.publisher = process_name();
      const Status told = exchange.report(begin, reported);
      DW_RETURN_IF_ERROR(Status(failure));
      // From here on rank 0 may use the parts: they stay, whatever this rank hears or misses.
      draft.stream.reset();
      uncertain = true;
      DW_RETURN_IF_ERROR(Status(told));
    } else if (event.done) {
      const std::vector<std::string>& nonces = event.done->nonces;
      if (!event.done->unchanged) {
        uncertain = false;
        return Status(Code::kCancelled, "rank 0 gave up version " + std::to_string(next_version()) +
                                            ": " + event.done->failure);
      }
      if (nonces.size() > options.rank && nonces[options.rank] == nonce) {
        uncertain = false;
        report.committed = false;
        report.version = head->manifest.version;
        return report;
      }
      current.clear();  // decided on what an earlier process of this rank had said
    } else {
      DW_RETURN_IF_ERROR(take_over(std::move(*event.committed), reported.record.pieces));
      uncertain = false;
      describe_head(&report);
      report.num_tensors = schema.tensors.size();
      report.num_elements = head->manifest.elements;
      report.num_changed = head->manifest.changed;
      advance(tensors, draft, clock, &report);
      return report;
    }
  }
}

}  // namespace deltawire
