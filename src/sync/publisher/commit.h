// The step that makes a version exist.
#pragma once

#include <functional>
#include <string>

#include "chain/chain.h"
#include "deltawire/publisher.h"

namespace deltawire {

enum class Outcome : uint8_t {
  kCommitted,
  kNot,      // certainly not
  kUnknown,  // the store did not say, and may still let it appear
};

struct CommitResult {
  Outcome outcome = Outcome::kNot;
  Status status;  // why, unless it is committed
  VersionRecord record;
};

// Runs the hook, asks `check` whether to go on, then commits. After a put whose answer was lost the
// chain is asked whether the manifest is there.
CommitResult commit_version(const Chain& chain, const Manifest& manifest,
                            const PublishOptions& options, const std::function<Status()>& check);

}  // namespace deltawire
