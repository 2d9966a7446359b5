// Which version of a chain somebody holds who does not know it.
#pragma once

#include <functional>
#include <optional>

#include "base/thread_pool.h"
#include "chain/chain.h"
#include "chain/plan.h"
#include "deltawire/status.h"
#include "replica/local_layout.h"
#include "replica/local_state.h"

namespace deltawire {

// Asks `holds` of the wanted version, then of the few before it, newest first, until one says yes.
// None: no such version. Records that are gone or damaged are passed over.
Result<std::optional<Held>> recognise_version(
    const Chain& chain, uint64_t wanted,
    const std::function<Result<bool>(const VersionRecord&)>& holds);

// A replica's folder whose state.json is damaged: what the files hold is found out by digest.

// The state as it must have been: the newest version up to `newest` whose tensors, all of them, are
// those of the checkpoint in the folder, bit for bit. None when it is none of the last few.
Result<std::optional<LocalState>> find_lost_state(const Chain& chain, const LocalLayout& layout,
                                                  bool copy_on_write, uint64_t newest,
                                                  ThreadPool* pool);

}  // namespace deltawire
