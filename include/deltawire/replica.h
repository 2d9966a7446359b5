// The receiving side: keeps a local checkpoint at a version of a chain, exactly.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "deltawire/limits.h"
#include "deltawire/manifest.h"
#include "deltawire/progress.h"
#include "deltawire/status.h"
#include "deltawire/store.h"

namespace deltawire {

// The versions that a replica accepts.
struct Accept {
  std::filesystem::path trust = {};  // public keys: records that none of them signed are refused
  std::string run = {};              // from no other run; empty: whichever the store holds
  uint64_t at_least = 0;             // no version below this one
};

// Versions are in LOCAL/v0000000123/, and LOCAL/current points to the newest.
struct CopyOnWrite {
  unsigned keep = 2;  // of the older ones
};

struct ReplicaOptions {
  Accept accept;
  Limits limits;
  std::optional<CopyOnWrite> copy_on_write;  // none: files are patched in place
  bool repair = true;       // start again from an anchor when the local state is not what it says
  bool verify_all = false;  // hash every tensor before patching, not only those that change
  // False: patched files reach the disk when the system writes them, after state.json perhaps. For
  // copies that are checked by digest before they are used, such as a publisher's snapshot.
  bool sync_files = true;
  bool heartbeat = true;  // leave LOCAL's version in the store, as far as that can be written
  std::string name;       // of this replica; empty: host, path and an id of LOCAL
  Progress progress;
};

// LOCAL/.deltawire/state.json
struct ReplicaState : Identity {
  std::string state = {};               // state digest, hex
  std::optional<uint64_t> patching_to;  // a patch is half-way: the files are not to be read
  std::string updated = {};             // UTC
  std::optional<Identity> serving;      // what the engines were last told to load, and took
  std::string engines = {};             // which: as they were given to set_serving()
};

// Where a replica is to go. By itself it goes forward only, along one history: what is held stays
// when the store has lost versions (NotFound) or was rewritten (Corruption).
struct PullGoal {
  PullGoal() = default;
  PullGoal(uint64_t the_version) : version(the_version) {}  // NOLINT: a number will do
  PullGoal(std::optional<uint64_t> the_version) : version(the_version) {}  // NOLINT

  // This version, also when it is older than what is held, or of another history.
  std::optional<uint64_t> version;
  // Without `version`: the newest one, but no further than this.
  std::optional<uint64_t> until;
  // Without `version`: what head() has just said, which is then not asked again.
  std::optional<uint64_t> head;
};

struct PullReport : Identity {
  std::optional<uint64_t> from;  // none: from nothing
  bool changed = false;          // false: was there already
  bool repaired = false;
  // Finishes a step that an earlier process, or a commit that failed, had begun. From prepare():
  // that step alone is prepared, and another prepare() goes on from there.
  bool recovered = false;
  std::string repair_reason;
  bool whole = false;  // began with a version that is stored whole
  uint64_t bytes = 0, num_hops = 0;
  uint64_t num_side_files = 0;  // added, changed or removed
  uint64_t num_tensors = 0, num_changed = 0, weights_bytes = 0;
  uint64_t num_ahead = 0;                 // tensors that prepare_ahead() had decoded
  uint64_t staged_device_bytes = 0;       // of a GPU's memory, for what prepare() has decoded
  double seconds = 0, patch_seconds = 0;  // patch: the window in which files change
  std::vector<Phase> phases;
  std::filesystem::path path;  // the checkpoint
  // Files beside the weights that were not the chain's, or were edited, and were in the way of the
  // version's: where they are now.
  std::vector<std::string> set_aside;
};

// One per LOCAL at a time: a lock on LOCAL/.deltawire/lock says so (Conflict, naming the holder).
// Whatever happens, kill -9 included, LOCAL holds the old version or the new one after the next
// commit(), which is the only call that writes files of the checkpoint. Unsupported: records,
// codecs or digests of a later format than this build reads.
class Replica {
 public:
  // Drops what an earlier process was preparing; what it had begun to write is the next prepare()'s
  // and commit()'s to finish. BaseMismatch when LOCAL belongs to another run, or another one than
  // the store's was asked for.
  static Result<Replica> open(std::shared_ptr<Store> store, std::filesystem::path local,
                              ReplicaOptions options = {});
  ~Replica();
  Replica(Replica&&) noexcept;
  Replica& operator=(Replica&&) noexcept;

  const std::optional<ReplicaState>& state() const noexcept;
  Result<std::optional<uint64_t>> head();  // of the chain

  // Fetches and decodes everything that leads to the goal, checks it, and leaves it ready beside
  // the checkpoint, which is not touched. Engines may go on serving.
  Result<PullReport> prepare(const PullGoal& goal = {});
  // If there is no version to prepare: decodes the parts of the next version that a publisher has
  // sent so far, so that prepare() has less to do. The files do not change, and the result is
  // dropped if the version is never committed. Returns the number of decoded tensors; 0 with stores
  // that receive no early parts.
  uint64_t prepare_ahead();
  // Patches the checkpoint with what prepare() left: the only part that needs a pause. Readers see
  // the new version when it returns; the disk may not have all of it yet, and state.json says
  // `patching_to` until settle().
  Result<PullReport> commit();
  // Waits until what commit() did is on disk, and records the version. Adds its phases to `report`.
  // BaseMismatch, with nothing recorded, when files were changed since commit() and are not the
  // version any more: the next prepare() repairs them. Left out, the next prepare() or the
  // destructor does it; killed before, the next process patches again from the journal.
  Status settle(PullReport* report = nullptr);
  // All three.
  Result<PullReport> pull(const PullGoal& goal = {});

  // Notes in state.json and heartbeat what engines serve, how long they paused for that, and which
  // they are (any text).
  Status set_serving(const std::optional<Identity>& serving,
                     std::optional<double> pause_seconds = {}, std::string engines = {});

  struct Impl;  // defined inside the library only
  Impl& impl() noexcept { return *impl_; }

 private:
  explicit Replica(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// LOCAL's state without touching anything. NotFound when LOCAL is not a replica.
Result<ReplicaState> read_replica_state(const std::filesystem::path& local);

}  // namespace deltawire
