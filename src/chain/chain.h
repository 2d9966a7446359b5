// Internal operations on a chain, beyond deltawire/chain.h: creating one and adding versions.
// docs/protocol.md explains why it cannot drift.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "deltawire/chain.h"
#include "deltawire/status.h"
#include "deltawire/store.h"
#include "format/manifest.h"

namespace deltawire {

// The signer and verifier that Keys lead to.
struct ChainKeys {
  Signer sign;           // signs what is written; null: nothing is signed
  Verifier trust;        // checks what is read; null: signatures are not looked at
  std::string key = {};  // the public key of `sign`, hex digits; empty: nothing is signed
  // `trust` is a list of keys that somebody chose, ours among them: any of them may follow another.
  bool keys_chosen = false;
  // What is written may be signed otherwise (or not at all) than what it builds upon.
  bool change_key = false;
};

const ChainKeys& keys_of(const Chain& chain);

// Chain::open() with keys that were read before. keys() of it are empty.
Result<Chain> open_with_keys(std::shared_ptr<Store> store, ChainKeys keys);
// A handle of the same chain without cached records.
Chain with_other_keys(const Chain& chain, ChainKeys keys);
// Makes a new run; Conflict when there is one. Unsupported, unless `single_writer`, when the store
// cannot put a name only if it is absent.
Result<Chain> create_chain(std::shared_ptr<Store> store, ChainKeys keys, bool single_writer);

// The result of a commit. Only kNot means that our manifest was not put, so that its objects may be
// removed.
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

// Commits a version: puts its manifest if that number is free, then renews the hint. Conflict, with
// who and when, only on evidence: another's record is there, or newer versions that build upon
// another. `parent` and all else must be filled in; objects that it names must be in the store.
Commit commit_version(const Chain& chain, const Manifest& manifest);
// Parses a version's record from the bytes of its object, with the checks of Chain::version().
Result<VersionRecord> read_version(const Chain& chain, uint64_t version, std::string_view text);
// Puts the schema unless the same one is there; returns what a manifest says of it.
Result<PartRef> put_schema(const Chain& chain, const Schema& schema);

// Whether a record could not be read because it is missing or damaged, so that a reader should
// avoid it. Other failures (network, disk) say nothing about the record.
bool is_damage(const Status& status);

}  // namespace deltawire
