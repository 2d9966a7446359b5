// The order of things around a patch: pause all engines, patch, then reload and resume each.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "deltawire/manifest.h"
#include "deltawire/status.h"
#include "notify/engine.h"

namespace deltawire {

struct Change : Identity {       // what the checkpoint will be
  std::optional<uint64_t> from;  // what it is now; none: there is no checkpoint yet
  // The patch changes files that engines may have open. False: it makes new ones (copy-on-write).
  bool in_place = true;
  // What engines serve now, as far as is known: not always `from`, for one may have refused that.
  std::optional<Identity> serving;
};

struct EngineOutcome {
  std::string engine;
  Status status;  // the first thing that went wrong
  bool paused = false, reloaded = false;
  bool resumed = false;  // false: it may still be paused
  // The version it serves as far as is known; none: unknown, and so to be reloaded.
  std::optional<Identity> serving;
  std::vector<std::string> warnings;
  double reload_seconds = 0;
};

struct NotifyOutcome {
  bool patched = false;
  Status patch;  // why it was not patched: the patch's own failure, or that of a pause
  std::filesystem::path checkpoint;
  std::vector<EngineOutcome> engines;  // in the order they were added
  double pause_seconds = 0;            // from the first pause until the last engine was resumed

  // The patch's failure, else the first engine's.
  Status status() const;
  // The version that every engine serves; none when they differ, one is unknown or there are none.
  std::optional<Identity> serving() const;
};

// What happens when something fails:
//   pause   An engine that cannot be paused must not see files change under it: nothing is patched,
//           all engines are resumed and go on with the old version. Where no file changes that an
//           engine could have open (copy-on-write, or there was no checkpoint before), the patch is
//           made, and that engine alone is left out.
//   patch   All are resumed with the old version.
//   reload  The engine is resumed all the same: paused for ever helps nobody. `serving` says what
//           is known: the old version when it refused, none when it died or failed half-way.
//   resume  Reported; its version stands.
//   cancelled  Before the patch: nothing is patched. After it: what is not reloaded yet stays as it
//           is, a reload on its way is broken off (`serving`: none). All are resumed.
// Every engine that was told to pause is told to resume, also when the answer to the pause was
// lost. Who starts up and finds that an engine's recorded version is not the checkpoint's calls
// around() with a patch that does nothing: an earlier process may have died while they were paused.
class Notifier {
 public:
  // `cancelled`: as that of EngineOptions, and meant to be the same.
  explicit Notifier(std::function<bool()> cancelled = {}) : cancelled_(std::move(cancelled)) {}

  void add(std::unique_ptr<Engine> engine);
  bool empty() const noexcept { return engines_.empty(); }
  size_t size() const noexcept { return engines_.size(); }

  // `patch` returns the checkpoint that engines are to load. It is called at most once, from this
  // thread, and also when there are no engines. Engines are called in parallel.
  NotifyOutcome around(const Change& change,
                       const std::function<Result<std::filesystem::path>()>& patch);

 private:
  Status check_cancelled(std::string_view what) const;

  std::function<bool()> cancelled_;
  std::vector<std::unique_ptr<Engine>> engines_;
};

}  // namespace deltawire
