// Anchors that are made afterwards, from the chain alone.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "deltawire/status.h"
#include "deltawire/store.h"
#include "maintain/chain_state.h"

namespace deltawire {

struct AnchorReport {
  std::string run;
  uint64_t version = 0;
  bool made = false;  // false: it was stored whole already, every byte of it checked
  uint64_t bytes = 0, num_files = 0;
  double seconds = 0;
};

// Stores a version (none: the head) whole, from the chain alone.
Result<AnchorReport> make_anchor(std::shared_ptr<Store> store, std::optional<uint64_t> version,
                                 const WorkOptions& options);

}  // namespace deltawire
