// The step that makes a version exist.
#pragma once

#include <string>

#include "chain/chain.h"
#include "deltawire/publisher.h"

namespace deltawire {

// Runs the hook, then commits.
Commit commit_version(const Chain& chain, const Manifest& manifest, const PublishOptions& options);

}  // namespace deltawire
