// Which version of a chain somebody holds who does not know it.
#pragma once

#include <functional>
#include <optional>

#include "chain/chain.h"
#include "chain/plan.h"
#include "deltawire/status.h"

namespace deltawire {

// Asks `holds` of the wanted version, then of the few before it, newest first, until one says yes.
// None: no such version. Records that are gone or damaged are passed over.
Result<std::optional<Held>> recognise_version(
    const Chain& chain, uint64_t wanted,
    const std::function<Result<bool>(const VersionRecord&)>& holds);

}  // namespace deltawire
