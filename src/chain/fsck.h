// Checks a whole chain: every record, every link, every object.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "chain/chain.h"

namespace deltawire {

struct ObjectCheck {
  bool contents = true;  // read all parts; false: only look whether they are there, with their size
  unsigned threads = 0;  // 0: one per core
  // Called now and then with bytes done and, as far as known, to do. False: stop.
  std::function<bool(uint64_t done, uint64_t total)> progress;
};

// Fails only when the store does; what is wrong with the chain is in the report. A chain that is
// published to, or collected, meanwhile may show what is under way as a warning.
//
// Checked: the run; each manifest (form, checksum, run, number, parent link, sums, schema, counts,
// state digest, and signatures as the chain's keys say); that an anchor leads to each version; each
// part (size, sha-256) and that it fits the records (base, dtype, shape, digests); the files beside
// the weights (size, sha-256), that each came with its version or with the one before it, and that
// a version stored whole has copies of them and of nothing else; hop records likewise, against the
// manifests at both ends; the hint, pins, heartbeats, notes of gc; and that no other objects exist.
// Whether payloads decode to their digests needs the weights: maintain/walk_parts.h.
Result<FsckReport> check_chain(const Chain& chain, const ObjectCheck& options);

}  // namespace deltawire
