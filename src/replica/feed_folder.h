// LOCAL/.deltawire/feed/: what patched the files, kept for engine workers of this host, which patch
// live weights with it. docs/format.md, "The feed", is its contract.
//
// A feed is never what a version rests on: whoever misses something in it reads the checkpoint. So
// nothing here is synced to the disk, and no failure here makes a pull fail.
#pragma once

#include <cstdint>
#include <filesystem>

#include "replica/journal_record.h"
#include "replica/local_layout.h"

namespace deltawire {

// How much of a feed is kept. The newest versions stay for workers that are about to join; older
// ones while a worker needs them, but not for ever: from some point on a reload is cheaper.
struct FeedLimits {
  uint64_t keep_always = 4, keep_at_most = 32;  // versions
  uint64_t max_bytes = UINT64_MAX;              // of redo parts, beyond the newest version's
};

// Links the journal's record and redo parts into the feed. Best effort: logs what went wrong.
void add_to_feed(const LocalLayout& layout, const JournalRecord& record);

// A step that leads nowhere, for who wants to know what the version that is held is: when a feed
// begins. Best effort.
void begin_feed(const LocalLayout& layout, const JournalRecord& record);

// Removes what no worker needs any more to reach `held`, and what dead processes left. Best effort.
void prune_feed(const LocalLayout& layout, const Identity& held, const FeedLimits& limits);

}  // namespace deltawire
