#include "maintain/chain_state.h"

#include "base/folder.h"

namespace deltawire {
namespace fs = std::filesystem;

Result<ChainState> ChainState::open(const Chain& chain, fs::path folder,
                                    const WorkOptions& options) {
  ReplicaOptions replica;
  replica.limits.threads = options.threads;
  replica.heartbeat = false;
  replica.accept = {.trust = chain.keys().trust, .run = chain.run()};
  replica.progress = options.progress;
  DW_RETURN_IF_ERROR(make_folder(folder));
  DW_ASSIGN_OR_RETURN(Replica opened,
                      Replica::open(chain.shared_store(), folder, std::move(replica)));
  return ChainState(std::move(opened));
}

Result<const Checkpoint*> ChainState::bring_to(uint64_t version) {
  checkpoint_.reset();
  DW_ASSIGN_OR_RETURN(const PullReport report, replica_.pull(version));
  DW_ASSIGN_OR_RETURN(checkpoint_, Checkpoint::open(report.path));
  return &*checkpoint_;
}

}  // namespace deltawire
