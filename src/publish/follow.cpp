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

struct Publisher::Impl::Follow {
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
  const JoinedBody joined(std::move(boxes));
  SealingBody sealing(joined, own.record.pieces);
  DW_RETURN_IF_ERROR(store->put(boxes_name(begin.of, options.rank), sealing));
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
                    quote(piece.tensor) + " as rank " + std::to_string(options.rank) +
                    " published it");
  }
  head = std::move(record);
  schema = std::move(next);
  return {};
}

// What an attempt that was announced when this process came says of itself.
Status Publisher::Impl::remember_attempts() {
  const RankExchange exchange(*chain, next_version(), options.world, rank_keys);
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

Status Publisher::Impl::say(Follow* follow) {
  const RankBegin& begin = *follow->begin;
  const auto make = [&]() -> Result<RankReport> {
    DW_RETURN_IF_ERROR(Status(follow->unfit));
    if (begin.of.world != options.world) {
      return invalid_argument("rank " + std::to_string(options.rank) + " expects " +
                              std::to_string(options.world) + " ranks, rank 0 announces " +
                              std::to_string(begin.of.world));
    }
    const RankTask& task = follow->task;
    if (begin.full) {
      return report_full(task.tensors, begin, task.clock, &follow->draft, &follow->report);
    }
    if (!follow->delta) {
      follow->delta = report_delta(task.tensors, task.clock, &follow->draft, &follow->report);
    }
    return *follow->delta;
  };
  Result<RankReport> own = make();
  const Status failure = own.ok() ? Status() : own.status();
  follow->reported = own.ok() ? std::move(*own) : RankReport{};
  RankReport& report = follow->reported;
  report.failure = failure.ok() ? "" : failure.to_string();
  report.of = begin.of;
  report.rank = options.rank;
  report.full = begin.full;
  report.nonce = follow->nonce;
  report.publisher = process_name();
  const Status told = follow->exchange.put_report(report);
  // From here on rank 0 may use the parts: they stay, whatever this rank hears or misses.
  if (failure.ok()) follow->draft.stream.reset();
  return failure.ok() ? told : failure;
}

ranks::Follower Publisher::Impl::answer(ranks::Follower follower, Follow* follow) {
  using Ask = ranks::Follower::Ask;
  const RankExchange& exchange = follow->exchange;
  const auto failed = [&](const auto& result) {
    return ranks::failed(std::move(follower), Status(result.status()));
  };
  const auto end_of = [&](const std::optional<RankDone>& done) {
    std::optional<ranks::EndSeen> end;
    if (!done) return end;
    const auto& nonces = done->nonces;
    const bool heard = nonces.size() > options.rank && nonces[options.rank] == follow->nonce;
    end = {done->ending, heard, done->failure};
    return end;
  };
  switch (follower.ask) {
    case Ask::kReadBegin: {
      follow->begin.reset();
      const Result<std::optional<std::string>> text = exchange.begin_text();
      if (!text.ok()) return failed(text);
      std::optional<ranks::AttemptSeen> seen;
      if (*text && *text != unreadable_begin) {
        Result<RankBegin> begin = exchange.read_begin(**text);
        if (!begin.ok()) return failed(begin);
        seen = {begin->of.attempt, begin->of.step, begin->full};
        follow->begin = std::move(*begin);
      }
      return read_begin(std::move(follower), seen);
    }
    case Ask::kReadManifest: {
      Result<std::optional<VersionRecord>> record = exchange.read_manifest();
      if (!record.ok()) return failed(record);
      std::optional<std::string> attempt;
      if (*record) attempt = (*record)->manifest.attempt;
      follow->there = std::move(*record);
      return read_manifest(std::move(follower), attempt);
    }
    case Ask::kReadEnd: {
      const Result<std::optional<RankDone>> done = exchange.read_done(follower.about);
      return done.ok() ? read_end(std::move(follower), end_of(*done)) : failed(done);
    }
    case Ask::kFindEnd: {
      const Result<std::optional<RankDone>> done = exchange.find_failure(follower.step);
      return done.ok() ? found_end(std::move(follower), end_of(*done)) : failed(done);
    }
    case Ask::kReport: {
      Status status = say(follow);
      follow->pacer.start_over();
      return status.ok() ? reported(std::move(follower))
                         : ranks::failed(std::move(follower), std::move(status));
    }
    case Ask::kPause:
      return paused(std::move(follower), follow->pacer.pause(), options.rank_timeout_seconds);
    case Ask::kOver:
      break;
  }
  return follower;
}

Result<PublishReport> Publisher::Impl::follow(const RankTask& task) {
  using Verdict = ranks::Follower::Verdict;
  Follow follow{task, RankExchange(*chain, next_version(), options.world, rank_keys),
                Pacer(options), task.unfit, random_hex(kAttemptDigits)};
  PublishReport& report = follow.report;
  if (follow.unfit.ok() && head && !options.full) {  // while rank 0 may not even have begun
    follow.delta = report_delta(task.tensors, task.clock, &follow.draft, &report);
  }
  ranks::Follower follower = ranks::start_following(next_version(), task.step, options.rank,
                                                    attempt_before, reported_attempts);
  while (follower.ask != ranks::Follower::Ask::kOver) {
    follower = answer(std::move(follower), &follow);
  }
  reported_attempts = follower.reported;
  switch (follower.verdict) {
    case Verdict::kFailed:
      if (!follow.unfit.ok()) return follow.unfit;
      if (follower.failure.code() == Code::kConflict && follow.there) {
        const Manifest& other = follow.there->manifest;
        return conflict(store->url() + ": " + follower.failure.message() + ": " + other.publisher +
                        " at " + other.created);
      }
      return std::move(follower.failure);
    case Verdict::kMoved:  // by what this rank had reported before: on to the next version
      DW_RETURN_IF_ERROR(read_head());
      return this->follow(task);
    case Verdict::kUnchanged:
      report.committed = false;
      report.version = head->manifest.version;
      break;
    case Verdict::kCommitted:
      DW_RETURN_IF_ERROR(follow.exchange.check_manifest(*follow.there));
      DW_RETURN_IF_ERROR(take_over(std::move(*follow.there), follow.reported.record.pieces));
      describe_head(&report);
      report.num_tensors = schema.tensors.size();
      report.num_elements = head->manifest.elements;
      report.num_changed = head->manifest.changed;
      advance(task.tensors, follow.draft, task.clock, &report);
      break;
  }
  reported_attempts.clear();
  return report;
}

}  // namespace deltawire
