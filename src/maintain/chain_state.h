// States of a chain on disk, for work that needs no trainer: anchors made afterwards, merged
// deltas.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "base/work_folder.h"
#include "deltawire/checkpoint.h"
#include "deltawire/maintain.h"
#include "deltawire/replica.h"
#include "deltawire/status.h"

namespace deltawire {

// A replica in a work folder. Thread safety: none.
class ChainState {
 public:
  static Result<ChainState> open(const Chain& chain, std::filesystem::path folder,
                                 const WorkOptions& options);
  // By the cheapest path from where it is. The checkpoint is valid until the next call.
  Result<const Checkpoint*> bring_to(uint64_t version);

 private:
  explicit ChainState(Replica replica) : replica_(std::move(replica)) {}
  Replica replica_;
  std::optional<Checkpoint> checkpoint_;
};

}  // namespace deltawire
