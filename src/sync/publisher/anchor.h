// Anchors: versions that are stored whole beside the deltas that lead to them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "chain/chain.h"
#include "deltawire/delta.h"
#include "deltawire/publisher.h"
#include "sync/chain_state.h"
#include "sync/publisher/full_version.h"
#include "sync/publisher/side_files.h"

namespace deltawire {

// The newest version that is stored whole, and what all versions up to it have cost.
struct AnchorPoint {
  uint64_t version = 0, bytes = 0, chain_bytes = 0;
};

// The newest one up to `head`: what its manifest says, or an anchor that was added since.
Result<AnchorPoint> newest_anchor(const Chain& chain, const Manifest& head);

// Whether `head`, a delta, is due to be stored whole.
bool anchor_due(const PublishOptions& options, const Manifest& head, const AnchorPoint& newest);

// Puts the files of a committed version, copies of `sides` among them, and an edge that leads to it
// from nothing; `replace`: in place of one that is of no use. Returns their bytes.
Result<uint64_t> add_anchor(const Chain& chain, const VersionRecord& version,
                            std::vector<FullFile> files, const SideFiles& sides, PublishClock clock,
                            const Progress& progress, bool replace = false);

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
