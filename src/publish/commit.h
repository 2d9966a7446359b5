// The step that makes a version exist.
#pragma once

#include <functional>
#include <string>

#include "chain/chain.h"
#include "deltawire/publisher.h"

namespace deltawire {

// Runs the hook, asks `check` whether to go on, then commits.
Commit commit_version(const Chain& chain, const Manifest& manifest, const PublishOptions& options,
                      const std::function<Status()>& check);

}  // namespace deltawire
