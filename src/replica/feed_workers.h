// Who reads a feed: the engine workers of this host, and which version each of them has.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "deltawire/manifest.h"
#include "deltawire/status.h"

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

}  // namespace deltawire
