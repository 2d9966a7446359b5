// A serving engine, as far as new weights concern it: it can be paused, made to reload, and
// resumed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/secret.h"
#include "deltawire/status.h"

namespace deltawire {

struct ReloadRequest {
  std::filesystem::path checkpoint;  // absolute; the engine must see it under the same name
  uint64_t version = 0;
  std::string run;
};

// Which weights an engine holds after a reload.
enum class Weights : uint8_t {
  kOld,      // it said no, and changed nothing
  kNew,      // it said yes, or said no and turned out to have them
  kUnknown,  // it died, did not answer or failed half-way: nobody may claim a version for it
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

struct PullWeights {
  std::string local_checkpoint_dir, source_dir;  // as the engine's hosts see them
  uint64_t target_version = 0;
};

// slime's extra call of an SGLang engine: every host that it spans brings its local checkpoint to a
// version. Nothing is served from it yet: reload() follows. Ok when it said {"success": true}.
// Asking again for a version that is there is harmless, so a lost answer is no reason to give up.
// Unsupported: the engine has no such call.
Status call_pull_weights(const std::string& url, const EngineOptions& options,
                         const PullWeights& request);

}  // namespace deltawire
