// The state of a Publisher, shared by the files that implement its steps.
#pragma once

#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "chain/chain.h"
#include "chain/plan.h"
#include "deltawire/publisher.h"
#include "diff/diff.h"
#include "publish/anchor.h"
#include "publish/full_version.h"
#include "publish/ranks.h"
#include "publish/record.h"
#include "publish/side_files.h"
#include "publish/snapshot.h"
#include "publish/snapshot_file.h"
#include "transfer/part_stream.h"

namespace deltawire {

// A version in preparation: the objects put for it, and its manifest.
struct Draft {
  Manifest manifest;
  NewState state;
  std::vector<PieceRecord> pieces;  // of the tensors, as published
  std::optional<KeptChanges> kept;
  // At most one of the two is set. Its destructor removes what it put, unless it was finished.
  std::unique_ptr<PartStream> stream;
  std::unique_ptr<FullUpload> upload;
  // The side files. Other drafts of the same version may share them.
  std::shared_ptr<SideFiles> sides;

  // Waits for the files of a version stored whole.
  Status finish_upload(std::string reason, PublishReport* report);
  void abandon();    // removes what was put, except for side files
  void take_back();  // removes everything
  // The objects that were put and are available locally.
  std::vector<ObjectAtHand> at_hand() const;
};

// The new state as a checkpoint folder. `weights` is called only when needed.
struct FullSource {
  std::function<Result<std::vector<FullFile>>(const Contents& contents)> weights;
  std::optional<SidePaths> extra_files;  // none: as in the previous version
  // Io if the files that the tensors come from were modified. May be empty.
  std::function<Status()> check_unchanged = {};
  std::shared_ptr<SideFiles> sides =
      {};  // made from the extra files once the previous version is known

  // `pack`: null for plain files. `there`: what need not be read from `contents`.
  Result<std::vector<FullFile>> files(const Contents& contents, ThreadPool* pack,
                                      const CodedThere& there = {}) const;
  Status check() const { return check_unchanged ? check_unchanged() : Status(); }
};

inline void add_phase(std::optional<Phase> phase, PublishReport* report) {
  if (phase) report->phases.push_back(std::move(*phase));
}

inline void describe_change(const SchemaChange& change, PublishReport* report) {
  report->num_added = change.added.size();
  report->num_removed = change.removed.size();
  report->num_reshaped = change.reshaped.size();
}

inline void describe_state(const NewState& state, PublishReport* report) {
  report->num_tensors = state.schema.tensors.size();
  report->num_changed_tensors = state.num_changed_tensors;
  describe_change(state.change, report);
  report->num_elements = state.num_elements;
  report->num_changed = state.num_changed;
}

// A note in the snapshot's folder: which store it was published to, and the newest version there.
// It distinguishes a new or outdated store from one that has lost its run or versions.

struct KnownVersion {
  std::string run;
  Held version;
  std::string elsewhere = {};  // another store it was published to; empty: this one
};

// Best effort: without the note, losses are not noticed; nothing else depends on it.
void remember_store(const Store& store, const std::filesystem::path& snapshot,
                    const std::optional<KnownVersion>& newest);
std::optional<KnownVersion> known_version(const Store& store,
                                          const std::filesystem::path& snapshot);

// For a store without a run. NotFound if the snapshot belongs to a run or, with a snapshot per run,
// if one of them belongs to a run in this store.
Status check_no_run_was_here(const Store& store, const SnapshotInFolder& place);

// Removes what would cause a refusal: the notes, and the snapshot if there is one for all runs.
Status forget_runs(const Store& store, const SnapshotInFolder& place);

struct Publisher::Impl {
  Impl(std::shared_ptr<Store> store_, PublishOptions options_);
  ~Impl();

  const std::shared_ptr<Store> store;
  const PublishOptions options;
  const SnapshotInFolder* const on_disk;  // of the options; null if the snapshot is in memory
  const Anchors* const anchors;           // of the options; null if every version is stored whole
  ChainKeys keys;
  ThreadPool pool;

  std::optional<Chain> chain;
  std::optional<VersionRecord> head;  // the version of the snapshot
  Schema schema;                      // of the head
  AnchorPoint anchor;
  std::shared_ptr<PublishDevice> device;  // set by the first tensor on a device
  std::unique_ptr<Snapshot> snapshot;     // null: read from the chain before use
  bool uncertain = false;                 // `head` may be outdated and must be read again
  std::string whole_reason;    // if set, the next version is stored whole for this reason
  uint64_t accepted_from = 0;  // with `whole_reason`: later hop records may belong to lost versions
  std::string left_out;        // the last note about files left out
  bool reported_dense = false;  // the note was given once

  Status open();
  using Tensors = std::span<const PublishTensor>;
  using Step = std::optional<uint64_t>;
  Result<PublishReport> publish(Tensors tensors, FullSource source, Step step = {});
  Status capture(Tensors tensors, FullSource source, Step step = {});
  Result<PublishReport> finish();
  Result<std::optional<CommittedState>> committed_state();

 private:
  struct Attempt {
    PublishClock clock = {};
    std::vector<PublishTensor> tensors = {};
    PublishReport report = {};
    Draft draft = {};
    Status unfit = {};                 // why the tensors cannot be published; for ranks
    Step step = {};                    // for ranks
    std::future<Status> is_free = {};  // runs during the work, because a distant store takes time
    bool over = false;                 // everything is done and the report is complete
  };
  std::unique_ptr<Attempt> captured;  // waits for finish()

  template <class Outcome>  // a Status or a Result
  Outcome noted(Outcome outcome) {
    uncertain = uncertain || !outcome.ok();
    return outcome;
  }

  // For tensors that are packed on a device; empty without a device.
  Result<CodedThere> code_there(Tensors tensors) {
    if (!device || options.plain_files) return CodedThere();
    return device->code_there(tensors);
  }
  ThreadPool* pack() { return options.plain_files ? nullptr : &pool; }
  ParentState parent() const {
    return head ? ParentState{&head->manifest, &schema} : ParentState{};
  }
  uint64_t next_version() const {
    return head ? head->manifest.version + 1 : options.origin.first_version;
  }
  // The reason to store the next version whole, known before any comparison; empty: try a delta.
  std::string why_whole() const {
    if (!whole_reason.empty()) return whole_reason;
    return !head ? "seed" : anchors == nullptr ? "mode" : "";
  }

  Status read_head();
  Status find_head_again();

  // Losses of the store: known_stores.cpp.
  using Newest = std::optional<VersionRecord>;
  Result<std::string> find_loss(const Held& known, const Newest& newest) const;
  Status check_loss(const KnownVersion& known, const Newest& newest) const;
  KnownVersion known_head() const { return {chain->run(), {head->manifest.version, head->digest}}; }
  Status check_head(const Result<VersionRecord>& there) const;
  Status check_noted();
  Status remove_lost_hops() const;
  void note_head() const;
  Status ensure_chain();
  Status ensure_snapshot(Tensors tensors);
  std::filesystem::path snapshot_folder() const {  // when it is on disk
    return on_disk->per_run ? on_disk->folder / chain->run() : on_disk->folder;
  }
  Status check_run() const;
  Status check_free() const;

  // alone.cpp
  Result<PublishReport> publish_once(Tensors tensors, FullSource source, Step step);
  Status capture_once(Tensors tensors, FullSource source, Step step);
  Result<PublishReport> finish_once();
  Status take_tensors(Tensors given, Attempt* attempt);
  Status prepare(Tensors given, FullSource* source, Attempt* attempt);
  Result<Attempt> begin(Tensors tensors, FullSource* source, Step step);
  Status put_sides(FullSource* source);
  Status check_schema(const Schema& next) const;
  Result<NewState> join(const std::vector<PublishRecord>& ranks, const FullSource& source) const;
  Status make_draft(const FullSource& source, bool keep, Attempt* attempt);
  Status end(const FullSource* source, Attempt* attempt);
  Status publish_in_one_go(const FullSource& source, Attempt* attempt);
  bool needs_tensors(const Attempt& attempt) const;
  PublishReport report_of(Attempt attempt) const;

  // draft.cpp
  Draft begin_delta(Tensors tensors, bool keep, PublishClock clock);
  Result<StateDiff> diff(Tensors tensors, uint64_t give_up_bytes, PublishClock clock, Draft* draft,
                         PublishReport* report);
  Result<Draft> draft_delta(Tensors tensors, const FullSource& source, bool keep,
                            PublishClock clock, std::string* full_reason, PublishReport* report);
  Result<Draft> draft_delta_or_rebuild(Tensors tensors, const FullSource& source, bool keep,
                                       PublishClock clock, std::string* full_reason,
                                       PublishReport* report);
  Result<Draft> draft_full(Tensors tensors, const FullSource& source, std::string reason,
                           PublishClock clock, PublishReport* report);

  // with_ranks.cpp: one rank of several
  struct Share;
  Status publish_as_rank(const FullSource& source, Attempt* attempt);
  Result<RankOutcome> agree(Share* share);
  Result<std::string> begin_as_rank(const Attempt& attempt);
  Result<std::string> report_as_rank(Share* share);
  Status take_base(const RankBegin& begin);
  Status take_version(uint64_t version, const Digest& manifest);
  Status share_delta(Share* share);
  Status share_full(Share* share);
  Result<std::string> decide(const std::vector<std::string>& texts, Share* share);
  Result<std::string> join_delta(std::vector<RankReport> reports, Share* share);
  Status join_full(std::vector<RankReport> reports, Share* share);

  // committed.cpp: from a draft to a version
  Status complete(Draft* draft, PublishClock clock);
  Status commit(Draft* draft, const FullSource* source, PublishClock clock, PublishReport* report);
  // `stay`: the tensors stay unchanged until this returns.
  void advance(Tensors tensors, bool stay, const Draft& draft, PublishClock clock,
               PublishReport* report);
  void add_anchor_if_due(Tensors tensors, const Draft& draft, const FullSource& source,
                         PublishClock clock, PublishReport* report);
  void describe_head(PublishReport* report) const;
  void notice_dense(Tensors tensors, PublishReport* report);
};

uint64_t bytes_of(std::span<const PublishTensor> tensors);
// The reason for a version stored whole because a delta is too large. Begins with kDense.
std::string dense_reason(uint64_t payload_bytes, uint64_t model_bytes);
inline constexpr std::string_view kDense = "dense: ";
// A delta larger than this share of the whole version is not worthwhile.
inline constexpr double kDenseShare = 0.9;

}  // namespace deltawire
