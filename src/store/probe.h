// What can be done with a store, tried on objects that are removed again: for `deltawire doctor`.
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

// Probes are "doctor/ID/NAME". No object of a chain is called so; fsck passes over them.
inline constexpr std::string_view kProbePrefix = "doctor/";
inline constexpr uint64_t kProbeBytes = 8'000'000;

struct ProbeStep {
  std::string what;    // "write", "put if absent", "read", "list", "delete", "transfer"
  Status status;       // Ok, or what went wrong
  std::string detail;  // of a step that is Ok
};

struct ProbeReport {
  std::vector<ProbeStep> steps;  // in the order they were tried; those that need a failed one: none
  bool put_if_absent = true;     // false: the store has no conditional put, as it says itself
  double put_seconds = 0, get_seconds = 0;  // for kProbeBytes; 0: not measured
  std::optional<int64_t> clock_ahead;       // the store's clock minus this machine's, in seconds
};

// Puts an object of a few bytes, then one of kProbeBytes, reads them in all ways that deltawire
// does, and removes them, whatever failed in between. Also removes those that killed processes left
// over an hour ago. Between two steps it asks `stop`; true: nothing more is tried (the last step is
// Cancelled).
ProbeReport probe_store(Store& store, const std::function<bool()>& stop);

}  // namespace deltawire
