// The feed of a host: the steps that it keeps for its engine workers, and which version each of
// them has.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "deltawire/manifest.h"
#include "deltawire/status.h"
#include "replica/journal.h"
#include "replica/local_state.h"

namespace deltawire {

// A process that reads a feed says so, and which version it has: steps that it has not taken stay,
// within limits.
class FeedWorker {
 public:
  // Conflict when a living process has that name.
  static Result<FeedWorker> join(const std::filesystem::path& local, const std::string& name,
                                 const Identity& version);
  ~FeedWorker();
  FeedWorker(FeedWorker&& other) noexcept;
  FeedWorker& operator=(FeedWorker&&) = delete;

  Status took(const Identity& version);

 private:
  FeedWorker(int fd, std::filesystem::path file) : fd_(fd), file_(std::move(file)) {}
  int fd_;
  std::filesystem::path file_;
};

// What the living workers of the host have; a worker that has not said so yet has an empty run.
// Removes the files of dead ones.
std::vector<Identity> feed_workers(const std::filesystem::path& local);
// The one that is furthest behind `held`, what the replica holds: another run's is behind all of
// its own. None: there are no workers, or one has not said yet what it has.
std::optional<Identity> slowest_feed_worker(const std::filesystem::path& local,
                                            const Identity& held);

// LOCAL/.deltawire/feed/: what patched the files, kept for engine workers of this host, which patch
// live weights with it. docs/format.md, "The feed", is its contract.
//
// A feed is never what a version rests on: whoever misses something in it reads the checkpoint. So
// nothing here is synced to the disk, and no failure here makes a pull fail.

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
