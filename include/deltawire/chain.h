// A chain in a store: its versions, what leads to them, what is kept of them, who reads them. What
// takes the weights themselves (merged deltas, anchors, proof of every version) is in
// deltawire/maintain.h.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "deltawire/keys.h"
#include "deltawire/manifest.h"
#include "deltawire/status.h"
#include "deltawire/store.h"

namespace deltawire {

// Versions first ... last.
struct VersionRange {
  uint64_t first = 0, last = 0;

  bool contains(uint64_t version) const { return version >= first && version <= last; }
  bool operator==(const VersionRange&) const = default;
};

// ---- plans

enum class HopKind : uint8_t { kVersion, kMerged, kAnchor };
std::string_view hop_kind_name(HopKind kind) noexcept;  // "delta", "merged", "anchor"

// One step of a plan: fetch these parts, apply them onto `base`, be at `version`.
struct Hop {
  HopKind kind = HopKind::kVersion;
  std::optional<uint64_t> base;  // none: the parts are a whole checkpoint
  uint64_t version = 0;
  std::vector<PartRef> parts;
  uint64_t bytes = 0;
};

struct Plan {
  VersionRecord target;
  Schema schema;  // of the target
  // Empty: nothing to do. When the first has no base, what is held is of no use.
  std::vector<Hop> hops;
  uint64_t bytes = 0;
  // For people: what following every single version from the held one (or the seed) would cost, and
  // the size of the newest anchor that the target knows of.
  uint64_t all_deltas_bytes = 0, anchor_bytes = 0;
  // Records that were damaged or inconsistent, and that the plan avoids.
  std::vector<std::string> notes;
};

// A merged delta or an anchor that was added to the chain, as its name tells.
struct AddedHop {
  uint64_t version = 0;
  std::optional<uint64_t> base;  // none: an anchor
  uint64_t bytes = 0;
};

// The object of the store that holds a file beside the weights.
std::string object_of(const SideFile& file);

// The share of a tensor that a version changed.
struct ChangeCounts {
  std::string tensor;
  uint64_t num_changed = 0, num_elements = 0;
};

// ---- who reads it

// "I am fetching what leads from `from` to `to`": retention keeps that until it expires. None:
// from nothing. A reader that takes longer renews it.
struct Lease {
  std::optional<uint64_t> from;
  uint64_t to = 0;
  int64_t expires = 0;  // seconds since 1970

  bool operator==(const Lease&) const = default;
};

// The heartbeat that a replica writes to the store.
struct Heartbeat {
  std::string name;          // of the replica, as people know it
  std::string id = {};       // of the replica's folder, the same after a restart; or of its process
  std::string session = {};  // of the process that wrote this
  std::string host;
  uint64_t pid = 0;
  std::optional<Identity> held = {};     // none: nothing yet
  std::optional<Identity> serving = {};  // what its engine was last told to load, and took
  std::optional<uint64_t> pause_microseconds = {};  // how long that took its engine's requests
  int64_t seen = 0;                                 // when this was written, seconds since 1970
  uint64_t interval_seconds = 0;                    // the next one follows within that time
  std::optional<Lease> lease = {};
  std::string error = {};  // why its last pull failed; empty: it did not

  bool operator==(const Heartbeat&) const = default;
};

// One object under replicas/; its contents may be unreadable.
struct ListedHeartbeat {
  ObjectInfo object;
  Result<Heartbeat> heartbeat;
  // Since the store took it, as Chain::replicas() found it.
  int64_t age_seconds = 0;

  // No heartbeat for three of its own intervals: its process has ended or cannot write to the
  // store.
  bool is_gone() const;
};

// A live replica, and whether it holds a version.
struct Holder {
  std::string name;
  std::optional<Identity> held;
  std::string missing;  // why it does not hold the version; empty: it does, or one after it
};

struct HoldersGoal {
  std::optional<uint64_t> version;   // none: the head
  std::optional<uint64_t> replicas;  // how many must hold it; none: all live ones
  double timeout_seconds = 60;
  std::function<bool()> cancelled = {};  // asked several times a second
};

struct HoldersReport {
  Identity version;
  std::vector<Holder> replicas;  // sorted by their objects' names
  uint64_t num_holding = 0;      // of them
  bool complete = false;         // false: the time was over
  double seconds = 0;
};

// ---- what is kept of it

struct GcOptions {
  uint64_t keep = 100;           // the newest versions; at least 1
  int64_t grace_seconds = 3600;  // between the removal of a record and that of its objects
  bool dry_run = false;
  // Remove signed versions though no key is trusted: the chain is no longer signed.
  bool signed_too = false;
};

// Why gc keeps something.
struct KeptBecause {
  std::string why;      // of versions: "newest", "pinned", "lease"; of objects: see KeptObjects
  std::string replica;  // whose lease it is
  int64_t until = 0;    // seconds since 1970 by the store's clock; 0: not known
};
struct KeptVersions {
  KeptBecause because;
  VersionRange versions;  // what is wanted
  uint64_t first = 0;     // kept to reach it: what comes before it, from this anchor on
};
// Objects of versions that are gone: "grace period", "lease", "recent" (somebody may be at work on
// them), "unreadable heartbeat" (it may hold a lease). `until` is that of the last of them.
struct KeptObjects {
  KeptBecause because;
  uint64_t num_objects = 0, bytes = 0;
};

struct GcReport {
  uint64_t head = 0;
  std::vector<VersionRange> kept;
  std::vector<KeptVersions> reasons;        // for these: at least one for each of them
  std::vector<KeptObjects> waiting;         // noted by earlier calls, and not deleted yet
  uint64_t num_versions = 0, num_hops = 0;  // records removed
  uint64_t num_orphans = 0;                 // objects that no record ever named, noted now
  uint64_t num_noted = 0, noted_bytes = 0;  // objects that a later call deletes, orphans included
  uint64_t num_deleted = 0, deleted_bytes = 0;  // objects whose grace period was over
  uint64_t num_waiting = 0;                     // objects of all `waiting`
  uint64_t num_forgotten = 0;                   // heartbeats a month old, removed
  uint64_t num_temporaries = 0;                 // files left by killed writers, a day old, removed
  std::vector<std::string> notes;               // unusual findings, for people
};

// The report of fsck_chain(), deltawire/maintain.h.
struct FsckReport {
  uint64_t head = 0;
  uint64_t num_versions = 0, num_hops = 0, num_schemas = 0, num_parts = 0;
  uint64_t num_files = 0;    // objects with files beside the weights
  uint64_t bytes = 0;        // of parts and files that records name
  uint64_t num_decoded = 0;  // versions whose every tensor was decoded, and is right
  uint64_t num_orphans = 0, orphan_bytes = 0;
  uint64_t num_waiting = 0, waiting_bytes = 0;  // noted by gc, or of a publish that is under way

  // Damage: something that was published cannot be had as it was, or lies about itself.
  std::vector<std::string> problems;
  // Nothing is lost: orphans, a wrong hint, objects of strangers, a pin of nothing.
  std::vector<std::string> warnings;

  bool sound() const { return problems.empty(); }
  bool clean() const { return problems.empty() && warnings.empty(); }
};

// A handle; copies share the store. Thread-safe.
class Chain {
 public:
  // NotFound when the store holds no run. InvalidArgument when a key file is none, when the key
  // that signs is not among the trusted ones, or when a change of it does not go with what is
  // given. One who signs reads no signature that does not hold.
  static Result<Chain> open(std::shared_ptr<Store> store, const Keys& keys = {});

  const std::string& run() const noexcept;
  Store& store() const noexcept;
  const std::shared_ptr<Store>& shared_store() const noexcept;
  const Keys& keys() const noexcept;

  // The newest version; none when nothing was published yet. A bounded number of requests: the
  // hint, a listing from there, and probes at growing distances, should the listing be behind.
  // Never behind what was committed before the call.
  Result<std::optional<uint64_t>> head() const;

  // The same for a caller that knows a version: in one round of requests when the chain has gone on
  // by no more than one since then, as it mostly has for a replica that keeps up. With the newest
  // version's record, where that was read on the way.
  struct Newest {
    std::optional<uint64_t> version;
    std::optional<VersionRecord> record;
  };
  Result<Newest> newest_after(uint64_t known) const;

  // The existing versions, ascending, without those that gc removed. One request per thousand.
  Result<std::vector<uint64_t>> versions() const;
  // Checked: record, run, version, and that parts lie where parts may. NotFound when it was pruned
  // or never published.
  Result<VersionRecord> version(uint64_t version) const;
  // Versions mostly share one schema: the last one that was read is kept.
  Result<Schema> schema(const Manifest& manifest) const;
  // By tensor, sorted by name; those that did not change are left out, and a version that is stored
  // whole has none. Reads the version's parts.
  Result<std::vector<ChangeCounts>> changes(uint64_t version) const;
  // The merged deltas and anchors that lead to versions `first` ... `last`. What listings show:
  // whether they can be used is for plan() and fsck to say.
  Result<std::vector<AddedHop>> added_hops(uint64_t first, uint64_t last) const;

  // The cheapest plan to version `to` (none: the head) for a replica that holds `from` (none:
  // nothing). NotFound when either is not there, or no path leads to it; Corruption when one would
  // but for a damaged record.
  Result<Plan> plan(std::optional<uint64_t> from = {}, std::optional<uint64_t> to = {}) const;

  // Keeps a version, and what leads to it, until it is unpinned. NotFound when it is not there, or
  // when nothing leads to it; Conflict when gc is about to remove some of that.
  Status pin(uint64_t version) const;
  // Takes away all its pins. NotFound when it has none.
  Status unpin(uint64_t version) const;
  Result<std::vector<uint64_t>> pins() const;  // ascending, each version once

  // Heartbeats of replicas. They are only hints, because anyone who can write to the store can
  // write one. Ages are by the store's clock; by this machine's where the store cannot be asked for
  // its time.
  Result<std::vector<ListedHeartbeat>> replicas() const;
  // Waits until replicas have written into the store that they hold a version. Asks the store again
  // and again, at most twice a second once it has taken longer. NotFound: there is no such version.
  Result<HoldersReport> wait_until_held(const HoldersGoal& goal = {}) const;
  // Removes what a replica that is gone has left; `name` is the replica's, or that of the object
  // under replicas/. How many were removed: several may share a name. NotFound when there is none,
  // Conflict when none is gone, unless `force`: then live ones are removed too, and come back when
  // they next write.
  Result<uint64_t> forget(const std::string& name, bool force = false) const;

  // Removes what retention does not keep: docs/protocol.md, "Retention". May be killed at any
  // instant, and run beside publishers, readers and another gc. Corruption, removing nothing, when
  // no anchor leads to the head. Where signed records would go, keys must be trusted
  // (InvalidArgument), unless `signed_too`.
  Result<GcReport> collect_garbage(const GcOptions& options) const;

  struct Impl;  // defined inside the library only
  explicit Chain(std::shared_ptr<const Impl> impl);
  const Impl& impl() const noexcept { return *impl_; }

 private:
  std::shared_ptr<const Impl> impl_;
};

// The position of a replica relative to its chain.
struct Standing {
  // "current", "behind", "ahead", "other run", "other history"; "unknown": it holds nothing
  std::string_view word = "unknown";
  std::string remark;           // for people
  std::optional<uint64_t> lag;  // none: what it holds is not on the way to the head
  bool elsewhere = false;       // what it holds is not of this chain
};

// Reads the manifest of each version that replicas hold once. One thread.
class Standings {
 public:
  Standings(const Chain& chain, std::optional<Identity> head)
      : chain_(chain), head_(std::move(head)) {}

  void set_head(const Identity& head) { head_ = head; }
  // Unavailable: a manifest could not be read now.
  Result<Standing> of(const Heartbeat& beat);

 private:
  Result<std::string> manifest_of(uint64_t version);

  Chain chain_;
  std::optional<Identity> head_;
  std::map<uint64_t, std::string> manifests_;  // empty: not there any more, or unreadable
};

}  // namespace deltawire
