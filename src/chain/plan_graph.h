// The cheapest path through what is known of a chain: pure, no I/O.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <vector>

#include "chain/names.h"

namespace deltawire {

// The cost of a hop in addition to its bytes: of two paths with the same bytes the shorter one
// wins.
inline constexpr uint64_t kHopCost = 4096;

// A state of the chain on a path. The sum of all deltas up to it makes the cost of plain versions a
// subtraction. Names of hops may lie about it: points that disagree are different points, and
// the lie shows when the path is checked.
struct PathPoint {
  uint64_t version = 0;
  uint64_t chain_bytes = 0;

  auto operator<=>(const PathPoint&) const = default;
};

// A piece of a path: a hop, or all versions one by one.
struct PathStep {
  std::optional<PathPoint> from;  // none: from nothing
  std::optional<size_t> hop;      // none: version by version
  PathPoint to;
};

class PlanGraph {
 public:
  // Where the path may begin, besides an empty replica.
  void start_at(PathPoint point) { start_ = point; }
  // A merged delta or a state stored whole (no base). Returns its number.
  size_t add_hop(const HopName& hop);
  void drop(size_t hop) { dropped_.insert(hop); }
  // No plain delta leads into this version: it is missing, or stored whole.
  void cut(uint64_t version) { cuts_.insert(version); }
  size_t num_ruled_out() const { return dropped_.size() + cuts_.size(); }

  // Nothing when no path leads there; no steps when it begins there.
  std::optional<std::vector<PathStep>> cheapest(PathPoint target) const;

 private:
  std::optional<PathPoint> start_;
  std::vector<HopName> hops_;
  std::set<size_t> dropped_;
  std::set<uint64_t> cuts_;
};

}  // namespace deltawire
