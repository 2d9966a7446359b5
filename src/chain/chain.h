// A chain in a store: its run, its head, its records. docs/protocol.md says why it cannot drift.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "deltawire/status.h"
#include "deltawire/store.h"
#include "format/manifest.h"

namespace deltawire {

struct ChainOptions {
  Signer sign;           // signs what is written; null: nothing is signed
  Truster trust;         // checks what is read; null: signatures are not looked at
  std::string key = {};  // the public key of `sign`, hex digits; empty: nothing is signed
  // `trust` is a list of keys that somebody chose, ours among them: any of them may follow another.
  bool keys_chosen = false;
  // What is written may be signed otherwise (or not at all) than what it builds upon.
  bool change_key = false;
};

// One record and the digest that links to it carry.
struct VersionRecord {
  Manifest manifest;
  Digest digest;
};

// What became of a commit. Only kNot says that no manifest of ours was put, so that what it would
// have named may be taken back.
enum class Outcome : uint8_t {
  kCommitted,
  kNot,
  kTooLate,  // it was put, but newer versions do not build upon it: it is no part of the chain
  kUnknown,  // the store did not say, and may still let it appear
};

struct Commit {
  Outcome outcome = Outcome::kNot;
  Status status;  // why, unless it is committed
  Digest digest;  // of the record, once there is one

  bool ok() const noexcept { return outcome == Outcome::kCommitted; }
};

// Whether a record could not be read because it is gone or is not what it must be: something to go
// around. Anything else (the network, the disk) says nothing about it.
bool is_damage(const Status& status);

// A handle; copies share the store. Thread-safe.
class Chain {
 public:
  // NotFound when the store holds no run.
  static Result<Chain> open(std::shared_ptr<Store> store, ChainOptions options);
  // Makes a new run; Conflict when there is one. Unsupported, unless `single_writer`, when the
  // store cannot put a name only if it is absent.
  static Result<Chain> create(std::shared_ptr<Store> store, ChainOptions options,
                              bool single_writer);

  const std::string& run() const noexcept { return run_; }
  Store& store() const noexcept { return *store_; }
  const std::shared_ptr<Store>& shared_store() const noexcept { return store_; }
  const ChainOptions& options() const noexcept { return options_; }

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

  // Checked: record, run, version, and that parts lie where parts may. NotFound when it was pruned
  // or never published.
  Result<VersionRecord> version(uint64_t version) const;
  // Versions mostly share one schema: the last one that was read is kept.
  Result<Schema> schema(const Manifest& manifest) const;

  // Commits a version: puts its manifest if that number is free, then renews the hint. Conflict,
  // with who and when, only on evidence: another's record is there, or newer versions that build
  // upon another. `parent` and all else must be filled in; objects that it names must be in the
  // store.
  Commit commit(const Manifest& manifest) const;
  // Puts the schema unless the same one is there; returns what a manifest says of it.
  Result<PartRef> put_schema(const Schema& schema) const;

 private:
  struct LastSchema;
  Chain(std::shared_ptr<Store> store, ChainOptions options, std::string run);
  Status taken_by(const Manifest& other) const;
  Commit settle_put(const Manifest& manifest, const Digest& digest, bool only_if_absent,
                    Status answer) const;
  Commit check_newest(const Manifest& manifest, const Digest& digest) const;
  Result<bool> exists(uint64_t version) const;
  Result<std::optional<uint64_t>> hint() const;
  Result<std::vector<uint64_t>> listed_from(uint64_t from) const;
  Result<std::optional<uint64_t>> newest_listed(uint64_t from) const;

  std::shared_ptr<Store> store_;
  ChainOptions options_;
  std::string run_;
  std::shared_ptr<LastSchema> last_schema_;
};

// "2026-11-15T05:36:24Z"
std::string utc_now();
// "host:pid"
std::string process_name();

}  // namespace deltawire
