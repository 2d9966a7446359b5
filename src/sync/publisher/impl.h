// What a Publisher holds, for the files that make up its steps.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "chain/chain.h"
#include "deltawire/publisher.h"
#include "sync/publisher/anchor.h"
#include "sync/publisher/diff.h"
#include "sync/publisher/full_version.h"
#include "sync/publisher/part_stream.h"
#include "sync/publisher/ranks.h"
#include "sync/publisher/record.h"
#include "sync/publisher/snapshot.h"

namespace deltawire {

// A version on its way: what was put for it, and what its manifest will say.
struct Draft {
  Manifest manifest;
  NewState state;
  std::vector<PieceRecord> pieces;  // of the tensors, as published
  std::optional<KeptChanges> kept;
  // One of them. Unless it was finished, it takes back what was put.
  std::unique_ptr<PartStream> stream;
  std::unique_ptr<FullUpload> upload;

  void abandon();  // takes back what was put
  // What was put, as far as it need not be fetched again.
  std::vector<ObjectAtHand> at_hand() const;
};

// The new state as a checkpoint directory; asked for only when it is needed.
struct FullSource {
  std::function<Result<std::vector<FullFile>>(const Contents& contents)> weights;
  std::vector<std::filesystem::path> extra_files;
  // Io when the files that the tensors are read from were written to; may be empty.
  std::function<Status()> check_unchanged = {};

  Result<std::vector<FullFile>> files(const Contents& contents) const;
  Status check() const { return check_unchanged ? check_unchanged() : Status(); }
};

inline void add_phase(std::optional<Phase> phase, PublishReport* report) {
  if (phase) report->phases.push_back(std::move(*phase));
}

struct Publisher::Impl {
  Impl(std::shared_ptr<Store> store_, std::filesystem::path folder_, PublishOptions options_);
  ~Impl();

  const std::shared_ptr<Store> store;
  const std::filesystem::path folder;  // of the snapshot; empty: in memory
  const PublishOptions options;
  ChainOptions keys;
  ThreadPool pool;

  std::optional<Chain> chain;
  std::optional<VersionRecord> head;  // the version that the snapshot is
  Schema schema;                      // of the head
  AnchorPoint anchor;
  std::shared_ptr<PublishDevice> device;  // from the first tensor on that is on one
  std::unique_ptr<Snapshot> snapshot;     // null: to be read from the chain before it is used
  bool uncertain = false;                 // whether `head` is still the chain's must be asked
  std::set<std::string> past_attempts;    // of ranks, that this publish is not part of

  Status open();
  using Tensors = std::span<const PublishTensor>;
  Result<PublishReport> publish(Tensors tensors, const FullSource& source);
  Status capture(Tensors tensors, const FullSource& source);
  Result<PublishReport> finish();

 private:
  struct Attempt;
  std::unique_ptr<Attempt> captured;  // waits for finish()

  ParentState parent() const {
    return head ? ParentState{&head->manifest, &schema} : ParentState{};
  }
  uint64_t next_version() const { return head ? head->manifest.version + 1 : 0; }
  DigestKind digest_kind() const { return head ? head->manifest.digest_kind : options.digest; }

  Status read_head();
  Status find_head_again();
  Status ensure_chain();
  Status wait_for_chain();
  Status ensure_snapshot(Tensors tensors);
  std::filesystem::path snapshot_folder() const {
    return options.snapshot_per_run ? folder / chain->run() : folder;
  }
  Status check_run() const;
  Status check_free() const;

  // alone.cpp
  Result<PublishReport> publish_once(Tensors tensors, const FullSource& source);
  Status capture_once(Tensors tensors, const FullSource& source);
  Result<PublishReport> finish_once();
  Result<Attempt> begin(Tensors tensors);
  Status make_draft(const FullSource& source, bool keep, Attempt* attempt);
  Status end(const FullSource* source, Attempt* attempt);
  Status publish_in_one_go(const FullSource& source, Attempt* attempt);
  bool needs_tensors(const Attempt& attempt) const;
  PublishReport report_of(Attempt attempt) const;

  // draft.cpp
  std::unique_ptr<PartStream> open_stream(Tensors tensors, PublishClock clock);
  Draft begin_delta(Tensors tensors, bool keep, PublishClock clock);
  DiffJob diff_job(Tensors tensors, uint64_t give_up_bytes, Draft* draft) const;
  Result<Draft> draft_delta(Tensors tensors, bool keep, PublishClock clock,
                            std::string* full_reason, PublishReport* report);
  Result<Draft> draft_delta_or_rebuild(Tensors tensors, bool keep, PublishClock clock,
                                       std::string* full_reason, PublishReport* report);
  Result<Draft> draft_full(Tensors tensors, const FullSource& source, std::string reason,
                           PublishClock clock, PublishReport* report);

  // with_ranks.cpp: one of several
  Result<PublishReport> publish_with_others(Tensors tensors, const FullSource& source,
                                            PublishClock clock);
  Result<PublishReport> lead(Tensors tensors, const FullSource& source, PublishClock clock);
  Result<Draft> lead_delta(Tensors tensors, RankExchange* exchange, const RankBegin& begin,
                           PublishClock clock, std::string* full_reason, RankDone* done,
                           PublishReport* report);
  Result<Draft> lead_full(Tensors tensors, const FullSource& source, RankExchange* exchange,
                          const RankBegin& begin, PublishClock clock, RankDone* done,
                          PublishReport* report);
  Result<PublishReport> follow(Tensors tensors, PublishClock clock);
  Result<RankReport> report_delta(Tensors tensors, PublishClock clock, Draft* draft,
                                  PublishReport* report);
  Result<RankReport> report_full(Tensors tensors, const RankBegin& begin, PublishClock clock,
                                 Draft* draft, PublishReport* report);
  Status take_over(VersionRecord record, const std::vector<PieceRecord>& pieces);

  // committed.cpp: from a draft to a version
  Status complete(Draft* draft, PublishClock clock);
  Status commit(Draft* draft, const FullSource* source, PublishClock clock, PublishReport* report);
  void advance(Tensors tensors, const Draft& draft, PublishClock clock, PublishReport* report);
  void add_anchor_if_due(Tensors tensors, const Draft& draft, const FullSource& source,
                         PublishClock clock, PublishReport* report);
  void describe_head(PublishReport* report) const;
};

uint64_t bytes_of(std::span<const PublishTensor> tensors);
std::string dense_reason(uint64_t payload_bytes, uint64_t model_bytes);
// A delta that costs more than this share of a whole version does not pay.
inline constexpr double kDenseShare = 0.9;
inline constexpr size_t kAttemptDigits = 12;

}  // namespace deltawire
