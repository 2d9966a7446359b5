// Removes what retention does not keep. docs/protocol.md, "Retention".
#pragma once

#include "chain/chain.h"

namespace deltawire {

// First deletes what earlier runs noted and nobody needs any more, then notes what has become
// unreferenced and removes its records: hop records, then manifests from the oldest up. May be
// killed at any instant, and run beside publishers, readers and another gc: what it removes is
// older than what they touch, announced before it goes, and outlives its records by the grace
// period. Schemas are shared and small, and stay.
//
// Readers without a lease must be done within the grace period, and so must compactions. Times are
// by the store's clock alone, whatever those of its machines say: Unsupported, removing nothing,
// when its objects have no times and there is a grace period. Corruption, removing nothing, when no
// anchor leads to the head. A replica's heartbeat that cannot be read may hold a lease: until it is
// a day old no objects are deleted, and a note says so.
//
// Records decide what goes, and who can write to the store can make some up: where signed ones
// would go, `chain` must be one that trusts keys (InvalidArgument), unless `signed_too` says that
// the chain is no longer signed. Notes in trash/ are hints: an object that a record names stays
// whatever they say, and so does what is younger than the grace period or above the head.
Result<GcReport> collect_garbage(const Chain& chain, const GcOptions& options);

}  // namespace deltawire
