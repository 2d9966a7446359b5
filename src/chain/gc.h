// Removes what retention does not keep. docs/protocol.md, "Retention".
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "chain/chain.h"
#include "chain/trash.h"

namespace deltawire {

struct GcOptions {
  uint64_t keep = 100;           // the newest versions; at least 1
  int64_t grace_seconds = 3600;  // between the removal of a record and that of its objects
  bool dry_run = false;
  int64_t now = 0;          // seconds since 1970; 0: the clock's
  bool signed_too = false;  // see collect_garbage()
};

struct GcReport {
  uint64_t head = 0;
  std::vector<VersionRange> kept;
  uint64_t num_versions = 0, num_edges = 0;  // records removed
  uint64_t num_orphans = 0;                  // objects that no record ever named, noted now
  uint64_t num_noted = 0, noted_bytes = 0;   // objects that a later run deletes, orphans included
  uint64_t num_deleted = 0, deleted_bytes = 0;  // objects whose grace period was over
  uint64_t num_waiting = 0;                     // objects noted earlier, not due yet or being read
  uint64_t num_forgotten = 0;                   // heartbeats a month old, removed
  uint64_t num_temporaries = 0;    // files that killed writers left, a day old, removed
  std::vector<std::string> notes;  // what was odd, for people
};

// First deletes what earlier runs noted and nobody needs any more, then notes what has become
// unreferenced and removes its records: shortcuts, then manifests from the oldest up. May be killed
// at any instant, and run beside publishers, readers and another gc: what it removes is older than
// what they touch, announced before it goes, and outlives its records by the grace period. Schemas
// are shared and small, and stay.
//
// Readers without a lease must be done within the grace period, and so must compactions; clocks of
// machines may differ by far less than it. Corruption, removing nothing, when no anchor leads to
// the head. A replica's heartbeat that cannot be read may hold a lease: until it is a day old no
// objects are deleted, and a note says so.
//
// Records decide what goes, and who can write to the store can make some up: where signed ones
// would go, `chain` must be one that trusts keys (InvalidArgument), unless `signed_too` says that
// the chain is no longer signed. Notes in trash/ are hints: an object that a record names stays
// whatever they say, and so does what is younger than the grace period or above the head.
Result<GcReport> collect_garbage(const Chain& chain, const GcOptions& options);

}  // namespace deltawire
