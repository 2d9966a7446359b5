// A replica's folder whose state.json is damaged: what the files hold is found out by digest.
#pragma once

#include <optional>

#include "base/thread_pool.h"
#include "chain/chain.h"
#include "deltawire/status.h"
#include "replica/local_layout.h"
#include "replica/local_state.h"

namespace deltawire {

// The state as it must have been: the newest version up to `newest` whose tensors, all of them, are
// those of the checkpoint in the folder, bit for bit. None when it is none of the last few.
Result<std::optional<LocalState>> find_lost_state(const Chain& chain, const LocalLayout& layout,
                                                  bool copy_on_write, uint64_t newest,
                                                  ThreadPool* pool);

}  // namespace deltawire
