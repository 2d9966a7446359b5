// Anchors: versions stored whole in addition to their deltas.
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

// The newest version stored whole, and the bytes of all versions up to it.
struct AnchorPoint {
  uint64_t version = 0, bytes = 0, chain_bytes = 0;
};

// The newest one up to `head`: from the head's manifest, or an anchor added later.
Result<AnchorPoint> newest_anchor(const Chain& chain, const Manifest& head);

// Whether `head`, a delta, must be stored whole, too.
bool anchor_due(const Anchors& rule, const Manifest& head, const AnchorPoint& newest);

// Puts the files of a committed version, including copies of `sides`, and a hop record that leads
// to it from nothing. `replace`: replaces an unusable hop record. Meanwhile calls `prove` to check
// that the files are made of that version. Returns the size of the files.
Result<uint64_t> add_anchor(const Chain& chain, const VersionRecord& version,
                            std::vector<FullFile> files, const SideFiles& sides, PublishClock clock,
                            const Progress& progress, const std::function<Status()>& prove,
                            bool replace = false);

}  // namespace deltawire
