#include "chain/plan_graph.h"

#include <algorithm>
#include <limits>
#include <map>

namespace deltawire {
namespace {

constexpr int64_t kUnreached = std::numeric_limits<int64_t>::max();

struct ArrivalCost {
  int64_t cost = kUnreached;
  std::optional<PathPoint> from;
  std::optional<size_t> hop;
};

// Version by version from u to v costs (v.chain_bytes - u.chain_bytes) and a hop for each version:
// a part that depends on v alone, and this, which depends on u alone.
int64_t departure_cost(const PathPoint& point, int64_t cost) {
  return cost - int64_t(point.chain_bytes) - int64_t(kHopCost * point.version);
}

// The points that a run can begin at, cheapest departure first: of those with at most so many
// chain bytes, the best one. Others are dominated and dropped.
class Departures {
 public:
  void clear() { by_chain_bytes_.clear(); }

  void add(const PathPoint& point, int64_t cost) {
    const int64_t departure = departure_cost(point, cost);
    auto after = by_chain_bytes_.upper_bound(point.chain_bytes);
    if (after != by_chain_bytes_.begin() && std::prev(after)->second.cost <= departure) return;
    while (after != by_chain_bytes_.end() && after->second.cost >= departure) {
      after = by_chain_bytes_.erase(after);
    }
    by_chain_bytes_[point.chain_bytes] = {departure, point};
  }

  // The cheapest way to run to `to`; costs kUnreached when there is none.
  ArrivalCost best(const PathPoint& to) const {
    auto found = by_chain_bytes_.upper_bound(to.chain_bytes);
    if (found == by_chain_bytes_.begin()) return {};
    --found;
    // The inverse of departure_cost.
    return {found->second.cost - departure_cost(to, 0), found->second.point, {}};
  }

 private:
  struct Departure {
    int64_t cost;
    PathPoint point;
  };
  std::map<uint64_t, Departure> by_chain_bytes_;  // costs fall as chain bytes rise
};

}  // namespace

size_t PlanGraph::add_hop(const HopName& hop) {
  hops_.push_back(hop);
  return hops_.size() - 1;
}

// All arrows point to newer versions, so one pass in order of versions settles every point.
std::optional<std::vector<PathStep>> PlanGraph::cheapest(PathPoint target) const {
  std::map<PathPoint, ArrivalCost> points;
  std::multimap<PathPoint, size_t> ending;  // hops by where they lead
  points[target];
  for (size_t i = 0; i < hops_.size(); ++i) {
    const HopName& hop = hops_[i];
    if (dropped_.contains(i) || hop.version > target.version) continue;
    const PathPoint to{hop.version, hop.chain_bytes};
    points[to];
    if (hop.base) points[{*hop.base, hop.base_chain_bytes}];
    ending.emplace(to, i);
  }
  if (start_) points[*start_].cost = 0;

  Departures departures;
  std::optional<uint64_t> previous;
  for (auto at = points.begin(); at != points.end();) {
    const uint64_t version = at->first.version;
    const auto cut = previous ? cuts_.upper_bound(*previous) : cuts_.begin();
    if (cut != cuts_.end() && *cut <= version) departures.clear();
    const auto first = at;
    for (; at != points.end() && at->first.version == version; ++at) {
      ArrivalCost& arrival = at->second;
      const ArrivalCost run = departures.best(at->first);
      if (run.cost < arrival.cost) arrival = run;
      const auto [begin, end] = ending.equal_range(at->first);
      for (auto it = begin; it != end; ++it) {
        const HopName& hop = hops_[it->second];
        std::optional<PathPoint> from;
        int64_t cost = 0;
        if (hop.base) {
          from = PathPoint{*hop.base, hop.base_chain_bytes};
          cost = points.at(*from).cost;
        }
        if (cost == kUnreached) continue;
        cost += int64_t(hop.bytes + kHopCost);
        if (cost < arrival.cost) arrival = {cost, from, it->second};
      }
    }
    for (auto it = first; it != at; ++it) {
      if (it->second.cost != kUnreached) departures.add(it->first, it->second.cost);
    }
    previous = version;
  }

  if (points.at(target).cost == kUnreached) return {};
  std::vector<PathStep> path;
  for (std::optional<PathPoint> point = target; point && point != start_;) {
    const ArrivalCost& arrival = points.at(*point);
    path.push_back({arrival.from, arrival.hop, *point});
    point = arrival.from;
  }
  std::reverse(path.begin(), path.end());
  return path;
}

}  // namespace deltawire
