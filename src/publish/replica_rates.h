// How quickly replicas fetch, by what they say in their heartbeats.
#pragma once

#include <cstddef>
#include <cstdint>

#include "deltawire/store.h"

namespace deltawire {

struct FetchRates {
  double middle = 0;        // bytes per second
  size_t num_replicas = 0;  // that said something; 0: nothing is known
};

// Of replicas that were seen within the last hour: those that wrote last, a few. A store that
// cannot be listed, and heartbeats that cannot be read, say nothing. `now`: seconds since 1970.
FetchRates fetch_rates(Store& store, int64_t now);

}  // namespace deltawire
