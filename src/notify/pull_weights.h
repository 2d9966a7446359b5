// slime's extra call of an engine: every host that it spans brings its local checkpoint to a
// version. Nothing is served from it yet: reload() follows.
#pragma once

#include <cstdint>
#include <string>

#include "deltawire/status.h"
#include "notify/engine.h"

namespace deltawire {

struct PullWeights {
  std::string local_checkpoint_dir, source_dir;  // as the engine's hosts see them
  uint64_t target_version = 0;
};

// Ok when it said {"success": true}. Asking again for a version that is there is harmless, so a
// lost answer is no reason to give up. Unsupported: the engine has no such call.
Status call_pull_weights(const std::string& url, const EngineOptions& options,
                         const PullWeights& request);

}  // namespace deltawire
