// Another rank than 0: says what it holds, and hears what became of it.
#include "base/hex.h"
#include "base/process.h"
#include "base/sync_point.h"
#include "chain/names.h"
#include "publish/impl.h"
#include "publish/ranks_boxes.h"
#include "store/bodies.h"
#include "tensor/text.h"

namespace deltawire {

struct Publisher::Impl::Reporting {
  const RankTask& task;
  RankExchange exchange;
  Pacer pacer;
  Status unfit;  // why this rank can only say that it fails
  std::string nonce;
  std::optional<RankBegin> begin = {};
  Draft draft = {};
  std::optional<Result<RankReport>> delta = {};  // made once, whatever the number of attempts
  RankReport reported = {};
  std::optional<VersionRecord> there = {};
  PublishReport report = {};
};

Result<RankReport> Publisher::Impl::report_delta(Tensors tensors, PublishClock clock, Draft* draft,
                                                 PublishReport* report) {
  RankReport own;
  DW_RETURN_IF_ERROR(ensure_snapshot(tensors));
  *draft = begin_delta(tensors, false, clock);
  DW_ASSIGN_OR_RETURN(StateDiff diff, this->diff(tensors, UINT64_MAX, clock, draft, report));
  own.needs_full = diff.needs_full;
  own.payload_bytes = diff.payload_bytes;
  if (!own.needs_full.empty()) return own;
  own.record = std::move(diff.record);
  draft->pieces = own.record.pieces;
  DW_RETURN_IF_ERROR(draft->stream->finish({}));
  add_phase(draft->stream->upload_phase(), report);
  learn(*draft);
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
  DW_ASSIGN_OR_RETURN(own.record, hash_contents(tensors, boxes, parent(), &pool));
  report->phases.push_back({"hash", started, clock.now()});
  draft->pieces = own.record.pieces;
  const double uploading = clock.now();
  DW_SYNC_POINT("ranks: before boxes");
  const JoinedBody joined(std::move(boxes));
  SealingBody sealing(joined, own.record.pieces);
  DW_RETURN_IF_ERROR(store->put(boxes_name(begin.of, options.ranks.rank), sealing));
  DW_ASSIGN_OR_RETURN(own.boxes, sealing.seal());
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
                    quote(piece.tensor) + " as rank " + std::to_string(options.ranks.rank) +
                    " published it");
  }
  head = std::move(record);
  schema = std::move(next);
  return {};
}

// What an attempt that was announced when this process came says of itself.
Status Publisher::Impl::remember_attempts() {
  const RankExchange exchange(*chain, next_version(), options.ranks.world, rank_keys);
  DW_ASSIGN_OR_RETURN(const std::optional<std::string> text, exchange.begin_text());
  if (!text) return {};
  const Result<RankBegin> begin = exchange.read_begin(*text);
  if (!begin.ok()) {
    unreadable_begin = *text;  // rank 0 will replace it
    return {};
  }
  const Result<std::optional<RankDone>> done = exchange.read_done(begin->of.attempt);
  attempt_before = {begin->of.attempt, done.ok() && *done};
  return {};
}

Status Publisher::Impl::say(Reporting* reporting) {
  const RankBegin& begin = *reporting->begin;
  const auto make = [&]() -> Result<RankReport> {
    DW_RETURN_IF_ERROR(Status(reporting->unfit));
    if (begin.of.world != options.ranks.world) {
      return invalid_argument("rank " + std::to_string(options.ranks.rank) + " expects " +
                              std::to_string(options.ranks.world) + " ranks, rank 0 announces " +
                              std::to_string(begin.of.world));
    }
    const RankTask& task = reporting->task;
    if (begin.full) {
      return report_full(task.tensors, begin, task.clock, &reporting->draft, &reporting->report);
    }
    if (!reporting->delta) {
      reporting->delta =
          report_delta(task.tensors, task.clock, &reporting->draft, &reporting->report);
    }
    return *reporting->delta;
  };
  Result<RankReport> own = make();
  const Status failure = own.ok() ? Status() : own.status();
  reporting->reported = own.ok() ? std::move(*own) : RankReport{};
  RankReport& report = reporting->reported;
  report.failure = failure.ok() ? "" : failure.to_string();
  report.of = begin.of;
  report.rank = options.ranks.rank;
  report.full = begin.full;
  report.nonce = reporting->nonce;
  report.publisher = process_name();
  const Status told = reporting->exchange.put_report(report);
  // From here on rank 0 may use the parts: they stay, whatever this rank hears or misses.
  if (failure.ok()) reporting->draft.stream.reset();
  return failure.ok() ? told : failure;
}

ranks::Reporter Publisher::Impl::answer(ranks::Reporter reporter, Reporting* reporting) {
  using Ask = ranks::Reporter::Ask;
  const RankExchange& exchange = reporting->exchange;
  const auto failed = [&](const auto& result) {
    return ranks::failed(std::move(reporter), Status(result.status()));
  };
  const auto end_of = [&](const std::optional<RankDone>& done) {
    std::optional<ranks::EndSeen> end;
    if (!done) return end;
    const auto& nonces = done->nonces;
    const bool heard =
        nonces.size() > options.ranks.rank && nonces[options.ranks.rank] == reporting->nonce;
    end = {done->ending, heard, done->failure};
    return end;
  };
  switch (reporter.ask) {
    case Ask::kReadBegin: {
      reporting->begin.reset();
      const Result<std::optional<std::string>> text = exchange.begin_text();
      if (!text.ok()) return failed(text);
      std::optional<ranks::AttemptSeen> seen;
      if (*text && *text != unreadable_begin) {
        Result<RankBegin> begin = exchange.read_begin(**text);
        if (!begin.ok()) return failed(begin);
        seen = {begin->of.attempt, begin->of.step, begin->full};
        reporting->begin = std::move(*begin);
      }
      return read_begin(std::move(reporter), seen);
    }
    case Ask::kReadManifest: {
      Result<std::optional<VersionRecord>> record = exchange.read_manifest();
      if (!record.ok()) return failed(record);
      std::optional<std::string> attempt;
      if (*record) attempt = (*record)->manifest.attempt;
      reporting->there = std::move(*record);
      return read_manifest(std::move(reporter), attempt);
    }
    case Ask::kReadEnd: {
      const Result<std::optional<RankDone>> done = exchange.read_done(reporter.about);
      return done.ok() ? read_end(std::move(reporter), end_of(*done)) : failed(done);
    }
    case Ask::kFindEnd: {
      const Result<std::optional<RankDone>> done = exchange.find_failure(reporter.step);
      return done.ok() ? found_end(std::move(reporter), end_of(*done)) : failed(done);
    }
    case Ask::kReport: {
      Status status = say(reporting);
      reporting->pacer.start_over();
      return status.ok() ? reported(std::move(reporter))
                         : ranks::failed(std::move(reporter), std::move(status));
    }
    case Ask::kPause:
      return paused(std::move(reporter), reporting->pacer.pause(), options.ranks.timeout_seconds);
    case Ask::kOver:
      break;
  }
  return reporter;
}

Result<PublishReport> Publisher::Impl::report_to_lead(const RankTask& task) {
  using Verdict = ranks::Reporter::Verdict;
  Reporting reporting{task, RankExchange(*chain, next_version(), options.ranks.world, rank_keys),
                      Pacer(options), task.unfit, random_hex(kAttemptDigits)};
  PublishReport& report = reporting.report;
  if (reporting.unfit.ok() && head && anchors != nullptr) {  // while rank 0 may not even have begun
    reporting.delta = report_delta(task.tensors, task.clock, &reporting.draft, &report);
  }
  ranks::Reporter reporter = ranks::start_reporting(next_version(), task.step, options.ranks.rank,
                                                    attempt_before, reported_attempts);
  while (reporter.ask != ranks::Reporter::Ask::kOver) {
    reporter = answer(std::move(reporter), &reporting);
  }
  reported_attempts = reporter.reported;
  switch (reporter.verdict) {
    case Verdict::kFailed:
      if (!reporting.unfit.ok()) return reporting.unfit;
      if (reporter.failure.code() == Code::kConflict && reporting.there) {
        const Manifest& other = reporting.there->manifest;
        return conflict(store->url() + ": " + reporter.failure.message() + ": " + other.publisher +
                        " at " + other.created);
      }
      return std::move(reporter.failure);
    case Verdict::kMoved:  // by what this rank had reported before: on to the next version
      DW_RETURN_IF_ERROR(read_head());
      return this->report_to_lead(task);
    case Verdict::kUnchanged:
      report.committed = false;
      static_cast<Identity&>(report) = head->identity();
      break;
    case Verdict::kCommitted:
      DW_RETURN_IF_ERROR(reporting.exchange.check_manifest(*reporting.there));
      if (head) {
        DW_ASSIGN_OR_RETURN(const Schema next, chain->schema(reporting.there->manifest));
        describe_change(compare_schemas(schema, next), &report);
      }
      DW_RETURN_IF_ERROR(take_over(std::move(*reporting.there), reporting.reported.record.pieces));
      describe_head(&report);
      report.num_tensors = schema.tensors.size();
      report.num_elements = head->manifest.elements;
      report.num_changed = head->manifest.changed;
      advance(task.tensors, true, reporting.draft, task.clock, &report);
      break;
  }
  reported_attempts.clear();
  return report;
}

}  // namespace deltawire
