// One version after the other: what `import`, `export` and `mirror` do, once or for ever.
#pragma once

#include <functional>
#include <string>

#include "deltawire/status.h"

namespace deltawire::cli {

// Nothing was published to the store yet: to who follows it, that is no failure.
bool is_not_begun(const Status& status);

// `round` moves one, and says whether it did; `done` ends it. When it is to follow it waits for
// more, and goes on after failures that may pass.
struct StepLoop {
  bool follow = false;
  double interval = 5;                  // seconds between two looks
  std::string operation;                // "import", for metrics
  std::string failed;                   // the event of a failure that may pass
  std::function<Result<bool>()> round;  // false: there is none yet
  std::function<bool()> done;
  std::function<void()> reopen;           // after a failure: what the store holds decides
  std::function<void(double)> wait = {};  // for the next look; else by time alone

  Status run() const;
};

}  // namespace deltawire::cli
