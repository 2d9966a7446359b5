// The loop of `import`, `export` and `mirror` over versions, once or continuously.
#pragma once

#include <functional>
#include <string>

#include "deltawire/status.h"

namespace deltawire::cli {

// Whether nothing was published to the store yet, which is not an error with --follow.
bool is_not_begun(const Status& status);

// `round` moves one version and returns whether there was one; `done` ends the loop. With `follow`
// it waits for more versions and continues after temporary failures.
struct StepLoop {
  bool follow = false;
  double interval = 5;                  // polling interval in seconds
  std::string operation;                // "import", for metrics
  std::string failed;                   // the log event of a temporary failure
  std::function<Result<bool>()> round;  // false: there is none yet
  std::function<bool()> done;
  std::function<void()> reopen;           // called after a failure, to read the store's state again
  std::function<void(double)> wait = {};  // waits for the next poll; default: sleeps

  Status run() const;
};

}  // namespace deltawire::cli
