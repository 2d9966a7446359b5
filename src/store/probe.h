// Tests the operations of a store with temporary objects, for `deltawire doctor`.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "deltawire/status.h"
#include "deltawire/store.h"

namespace deltawire {

// Probes are named "doctor/ID/NAME", which no object of a chain is; fsck ignores them.
inline constexpr std::string_view kProbePrefix = "doctor/";
inline constexpr uint64_t kProbeBytes = 8'000'000;

struct ProbeStep {
  std::string what;    // "write", "put if absent", "read", "list", "delete", "transfer"
  Status status;       // Ok, or what went wrong
  std::string detail;  // of a step that is Ok
};

struct ProbeReport {
  std::vector<ProbeStep> steps;  // in order; steps that depend on a failed one are omitted
  bool put_if_absent = true;     // false: the store reports no conditional put
  double put_seconds = 0, get_seconds = 0;  // for kProbeBytes; 0: not measured
  std::optional<int64_t> clock_ahead;       // the store's clock minus this machine's, in seconds
};

// Puts a small object, then one of kProbeBytes, reads them in every way that deltawire does, and
// removes them even after failures. Also removes probes that killed processes left over an hour
// ago. Calls `stop` between steps; true ends the probe with a Cancelled step.
ProbeReport probe_store(Store& store, const std::function<bool()>& stop);

}  // namespace deltawire
