// The parts of a Replica. replica.cpp opens the folder; prepare.cpp and file_sink.h prepare a
// journal that leads to a version; transaction.cpp carries it out and records the version.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "base/thread_pool.h"
#include "deltawire/replica.h"
#include "replica/journal.h"
#include "replica/local_state.h"
#include "replica/overwrite.h"
#include "replica/replica_base.h"

namespace deltawire {

struct ReplicaCore : ReplicaBase {
  LocalLayout layout;
  ReplicaOptions options;
  std::optional<LocalLock> lock;

  std::optional<LocalState> state;    // the contents of state.json
  std::optional<ReplicaState> shown;  // the state that callers see
  std::string damage;                 // why the checkpoint does not match the state; empty: it does
  bool state_lost = false;            // only state.json is damaged
  bool state_gone = false;  // there is no state.json, so the owner of these files is unknown
  bool relink = false;      // copy-on-write: the link `current` must be repaired

  // A journal that an earlier process, or a failed commit, left behind. It is finished before
  // anything else, and only commit() carries it out, because somebody may be reading the files.
  std::optional<JournalRecord> unfinished;

  PlainFiles at_hand;  // see offer_files()

  // What prepare() left in journal.new/, or the unfinished journal.
  struct Pending {
    JournalRecord record;
    std::optional<OpenPatch> patch;
    bool resumed = false;      // from the unfinished journal: nothing is known of its files
    FileStamps held;           // stamps of the files that the step relies on, when they were read
    FileStamps written_files;  // stamps of the files that the step brings
    PullReport report;
  };
  std::optional<Pending> pending;

  // What commit() has patched and settle() still has to record.
  struct Unsettled {
    JournalRecord record;
    bool resumed = false;
    std::unique_ptr<PatchedFiles> files;  // the files that were patched
    FileStamps left;  // stamps of the checkpoint's files after commit(); other files are unknown
    std::map<std::string, HeldSide> sides;
    double seconds = 0;  // from the start of prepare() to the end of commit()
    std::chrono::steady_clock::time_point committed;
  };
  std::optional<Unsettled> unsettled;

  ReplicaCore(std::shared_ptr<Store> the_store, std::filesystem::path local,
              ReplicaOptions the_options)
      : ReplicaBase(
            std::move(the_store),
            {local.string(), the_options.repair, the_options.accept.at_least, the_options.progress},
            the_options.limits),
        layout{std::move(local)},
        options(std::move(the_options)) {}
  ~ReplicaCore() override;

  // after the record is carried out
  std::filesystem::path folder_of(const JournalRecord& record) const {
    return layout.checkpoint(record.kind == JournalKind::kSwitch, record.version);
  }

  // replica.cpp
  Status open();
  Status open_folder();
  Status recover();
  Status check_folder() const;  // the folder is still the one that is locked
  Status keep_folder();         // locks the folder again if it was replaced
  Status check_link() const;    // copy-on-write: `current` points to the held version
  Result<std::optional<uint64_t>> head() override;

  // transaction.cpp
  Result<PullReport> commit();
  Status commit_journal(const Pending& step);
  Status settle(PullReport* report);
  Result<FileStamps> carry_out(const Pending& step, std::vector<std::string>* set_aside);
  FileStamps stamps_after(const Pending& step, FileStamps patched) const;
  Status record_version(const JournalRecord& record, FileStamps weights,
                        std::map<std::string, HeldSide> sides);
  Status drop_journal();
  void give_up(const Status& status);
  Status save(LocalState next);
  void remove_old_versions(unsigned keep) const;

  // overwrite.cpp
  Result<std::optional<Checkpoint>> open_as_left();
  Result<bool> is_plain_way(const VersionRecord& next);
  Result<bool> overwrite(uint64_t version, std::span<const NewContents> changed);

  // prepare.cpp
  Result<PullReport> prepare(const PullGoal& goal);
  Result<bool> resume(PullReport* report);
  Status recover_lost_state(uint64_t newest, PullReport* report);
  bool is_lost() const override { return state_lost; }
  Status recognise(const PullGoal& goal, PullReport* report, PhaseClock* clock) override;
  Result<std::optional<Held>> held_version() const override;
  Status check_usable(uint64_t wanted, PullReport* report) override;
  Result<HeldNow> held_now() const override;
  std::unique_ptr<CatchUpSink> make_sink(Attempt* attempt) override;
  void abandon() override;
  void keep_report(PullReport* report) override;
};

struct Replica::Impl : ReplicaCore {
  using ReplicaCore::ReplicaCore;
};

}  // namespace deltawire
