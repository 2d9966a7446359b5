// States of a chain on disk, for work that needs no trainer: anchors made afterwards, merged
// deltas.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>

#include "base/work_folder.h"
#include "deltawire/checkpoint.h"
#include "deltawire/progress.h"
#include "deltawire/replica.h"
#include "deltawire/status.h"
#include "deltawire/store.h"

namespace deltawire {

struct WorkOptions {
  // Where states are kept meanwhile, as large as the model each; empty: the system's folder for
  // temporary files.
  std::filesystem::path folder;
  std::filesystem::path sign_key, trust_key;
  bool change_key = false;  // what is added may be signed otherwise than the chain's newest version
  unsigned threads = 0;
  bool single_writer = false;  // allow a store without conditional put
  Progress progress;
};

// A replica in a work folder. Thread safety: none.
class ChainState {
 public:
  static Result<ChainState> open(std::shared_ptr<Store> store, std::filesystem::path folder,
                                 const WorkOptions& options);
  // By the cheapest path from where it is. The checkpoint is valid until the next call.
  Result<const Checkpoint*> bring_to(uint64_t version);

 private:
  explicit ChainState(Replica replica) : replica_(std::move(replica)) {}
  Replica replica_;
  std::optional<Checkpoint> checkpoint_;
};

}  // namespace deltawire
