// What a Replica is made of. replica.cpp opens the folder, prepare.cpp and file_sink.h make a
// journal that leads to a version, transaction.cpp carries it out and records the version.
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

  std::optional<LocalState> state;    // as in state.json
  std::optional<ReplicaState> shown;  // the same for callers
  std::string damage;                 // why the checkpoint cannot be what the state says
  bool state_lost = false;            // the damage is that of state.json alone
  bool state_gone = false;            // there is none: whose files these are is not known
  bool relink = false;                // copy-on-write: `current` is to be mended, whatever else is

  // A journal that an earlier process, or a commit that failed, has left. It comes before anything
  // else, and like anything else it is carried out by commit() alone: somebody may be reading.
  std::optional<JournalRecord> unfinished;

  PlainFiles at_hand;  // see offer_files()

  // What prepare() left in journal.new/, or the unfinished journal.
  struct Pending {
    JournalRecord record;
    std::optional<OpenPatch> patch;
    bool resumed = false;      // the unfinished journal: nothing is known of its files
    FileStamps held;           // of the files that it rests on, when they were read
    FileStamps written_files;  // of the files that it brings
    PullReport report;
  };
  std::optional<Pending> pending;

  // What commit() has patched and settle() has yet to record.
  struct Unsettled {
    JournalRecord record;
    bool resumed = false;
    std::unique_ptr<PatchedFiles> files;  // those that were patched
    FileStamps left;  // of the checkpoint's files when commit() was done; others are not known
    std::map<std::string, HeldSide> sides;
    double seconds = 0;  // since prepare() began, when commit() was done
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

  std::filesystem::path folder_of(const JournalRecord& record) const {  // once it is carried out
    return layout.checkpoint(record.kind == JournalKind::kSwitch, record.version);
  }

  // replica.cpp
  Status open();
  Status open_folder();
  Status recover();
  Status check_folder() const;  // the folder is still the one that is locked
  Status keep_folder();         // takes it anew when it is not
  Status check_link() const;    // copy-on-write: `current` points to what is held
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
