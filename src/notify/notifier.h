// Pauses all engines around a patch, then reloads and resumes each.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/secret.h"
#include "deltawire/manifest.h"
#include "deltawire/status.h"

namespace deltawire {

// A serving engine, as far as new weights concern it: it can be paused, made to reload, and
// resumed.
struct ReloadRequest {
  std::filesystem::path checkpoint;  // absolute; the engine must see it under the same name
  uint64_t version = 0;
  std::string run;
};

// Which weights an engine holds after a reload.
enum class Weights : uint8_t {
  kOld,      // it refused, and changed nothing
  kNew,      // it loaded them, even if its answer was an error
  kUnknown,  // it died, did not answer or failed half-way
};

struct ReloadResult {
  Status status;
  Weights weights = Weights::kUnknown;
  std::vector<std::string> warnings;  // it serves the new weights, but ...
};

// One thread at a time. Every call ends: see CallLimits. Messages begin with name().
class Engine {
 public:
  virtual ~Engine() = default;
  virtual std::string name() const = 0;  // "sglang=http://10.0.0.7:30000"; no secrets
  // Running requests are kept, not aborted. Pausing twice or resuming what is not paused is Ok.
  virtual Status pause() = 0;
  virtual ReloadResult reload(const ReloadRequest& request) = 0;
  virtual Status resume() = 0;
};

struct CallLimits {
  double timeout_seconds = 300;  // of one attempt
  // Further attempts after a refused connection, a time-out or a 5xx. Never after a 4xx, nor of a
  // command.
  unsigned retries = 2;
  double backoff_seconds = 0.2;  // before the first of them; doubles up to 5 s, with jitter
};

struct EngineOptions {
  CallLimits limits;
  Secret api_key;  // sent as a bearer token; empty: none
  // Asked from the threads that call engines: true ends what is on its way, with Cancelled. Only
  // resume() goes on, for a few seconds more. Empty: never.
  std::function<bool()> cancelled;
};

// "http://host:port/prefix", checked and without a trailing '/'. InvalidArgument for anything else,
// user:password@ included: arguments are seen by everyone on a machine.
Result<std::string> check_engine_url(std::string_view url);

// "sglang=URL", "vllm=URL" or "exec=COMMAND". InvalidArgument says what is wrong with a spec or the
// key (a character that no header can have); Unsupported: an HTTP engine in a build without
// libcurl. Asks nothing of the engine.
Result<std::unique_ptr<Engine>> make_engine(std::string_view spec, const EngineOptions& options);

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

// What happens after a failure:
//   pause   An engine that cannot be paused must not see files change under it: nothing is patched,
//           all engines are resumed and go on with the old version. Where no file changes that an
//           engine could have open (copy-on-write, or there was no checkpoint before), the patch is
//           made, and that engine alone is left out.
//   patch   All are resumed with the old version.
//   reload  The engine is resumed in any case. `serving` says what
//           is known: the old version when it refused, none when it died or failed half-way.
//   resume  Reported; its version stands.
//   cancelled  Before the patch: nothing is patched. After it: what is not reloaded yet stays as it
//           is, a reload on its way is broken off (`serving`: none). All are resumed.
// Every engine that received a pause call receives a resume call, even if the answer to the pause
// was lost. Who starts up and finds that an engine's recorded version is not the checkpoint's calls
// around() with a patch that does nothing: an earlier process may have died while they were paused.
class Notifier {
 public:
  // `cancelled`: as that of EngineOptions, and meant to be the same.
  explicit Notifier(std::function<bool()> cancelled = {}) : cancelled_(std::move(cancelled)) {}

  void add(std::unique_ptr<Engine> engine);
  bool empty() const noexcept { return engines_.empty(); }
  size_t size() const noexcept { return engines_.size(); }
  std::string names() const;  // of all engines, a line each

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
