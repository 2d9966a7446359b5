// Anchors: versions that are stored whole beside the deltas that lead to them.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "chain/chain.h"
#include "deltawire/progress.h"
#include "deltawire/publisher.h"
#include "publish/full_version.h"
#include "publish/side_files.h"

namespace deltawire {

// The newest version that is stored whole, and what all versions up to it have cost.
struct AnchorPoint {
  uint64_t version = 0, bytes = 0, chain_bytes = 0;
};

// The newest one up to `head`: what its manifest says, or an anchor that was added since.
Result<AnchorPoint> newest_anchor(const Chain& chain, const Manifest& head);

// Whether `head`, a delta, is due to be stored whole.
bool anchor_due(const Anchors& rule, const Manifest& head, const AnchorPoint& newest);

// Puts the files of a committed version, copies of `sides` among them, and a hop record that leads
// to it from nothing; `replace`: in place of one that is of no use. Returns their bytes. `prove` is
// asked meanwhile whether what the files are made of is that version.
Result<uint64_t> add_anchor(const Chain& chain, const VersionRecord& version,
                            std::vector<FullFile> files, const SideFiles& sides, PublishClock clock,
                            const Progress& progress, const std::function<Status()>& prove,
                            bool replace = false);

}  // namespace deltawire
