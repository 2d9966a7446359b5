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
  int64_t now = 0;  // seconds since 1970; 0: the clock's
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
  std::vector<std::string> notes;               // what was odd, for people
};

// First deletes what earlier runs noted and nobody needs any more, then notes what has become
// unreferenced and removes its records: shortcuts, then manifests from the oldest up. May be killed
// at any instant, and run beside publishers, readers and another gc: what it removes is older than
// what they touch, announced before it goes, and outlives its records by the grace period. Schemas
// are shared and small, and stay.
//
// Readers without a lease must be done within the grace period, and so must compactions; clocks of
// machines may differ by far less than it. Corruption, removing nothing, when no anchor leads to
// the head, or when a replica's heartbeat, which may hold a lease, cannot be read.
Result<GcReport> collect_garbage(const Chain& chain, const GcOptions& options);

}  // namespace deltawire
