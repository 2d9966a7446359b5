// The records that a plan has read. Unusable ones are ruled out, so that no path uses them.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "chain/chain.h"
#include "chain/plan_graph.h"

namespace deltawire {

// The fields of a manifest that a plan needs, without the digests of tensors.
struct PlanLink {
  bool full = false;
  std::optional<uint64_t> base;
  std::optional<Digest> parent;
  Digest digest;
  std::vector<PartRef> parts;
  uint64_t bytes = 0, chain_bytes = 0, anchor = 0;
};

// One thread; requests go several at once.
class PlanRecords {
 public:
  // `avoid`: parts that are known to be damaged or gone.
  PlanRecords(const Chain& chain, const std::set<std::string>& avoid)
      : chain_(chain), avoid_(avoid) {}

  // ---- versions

  void add(uint64_t version, const VersionRecord& record);
  const PlanLink& link(uint64_t version) const { return links_.at(version); }
  const PlanLink* find(uint64_t version) const;  // null: not read
  PathPoint point_of(uint64_t version) const;
  PathPoint point_before(uint64_t version) const;
  // A version that is stored whole begins paths; no plain delta leads into it.
  void add_full(uint64_t version);
  // The version that a hop is, where add_full() made it one.
  std::optional<uint64_t> full_version(size_t hop) const;

  // ---- hops, numbered as in the graph

  void add_candidate(const HopName& name);  // unless it is known
  const std::vector<HopName>& hops() const noexcept { return hops_; }
  const HopRecord& hop(size_t hop) const { return hop_records_.at(hop); }

  // ---- requests: what was read before is not asked for again, and damage is ruled out

  Status fetch_links(std::vector<uint64_t> versions);
  Status fetch_hops(std::vector<size_t> hops);

  // ---- what is of no use

  // Corruption when one of the parts is to be avoided.
  Status check_parts(const std::vector<PartRef>& parts) const;
  void rule_out_version(uint64_t version, Status why);
  void rule_out_version(uint64_t version, std::string_view why);
  void rule_out_hop(size_t hop, Status why);
  void rule_out_hop(size_t hop, std::string_view why);
  // Notes an obstacle on a path. The first one is the error if no other path exists. Missing
  // records are not noted.
  void note(Status status);
  const std::vector<std::string>& notes() const noexcept { return notes_; }
  const Status& first_obstacle() const noexcept { return first_obstacle_; }

  PlanGraph& graph() noexcept { return graph_; }

 private:
  const Chain& chain_;
  const std::set<std::string>& avoid_;
  std::map<uint64_t, PlanLink> links_;  // manifests read
  std::vector<HopName> hops_;
  std::set<std::string> known_;               // their names
  std::map<size_t, HopRecord> hop_records_;   // records read, by number
  std::map<size_t, uint64_t> full_versions_;  // hops that are versions themselves
  PlanGraph graph_;
  std::vector<std::string> notes_;
  Status first_obstacle_;
};

// Whether the records along a path fit together: names and sums alone say nothing for certain.

// From a manifest of digest `held` (any, for a path from nothing) to one of digest `target`. All
// records along the path were read. False: they do not fit, and what does not is ruled out.
Result<bool> check_path(const std::vector<PathStep>& path, const Digest& held, const Digest& target,
                        PlanRecords* records);

}  // namespace deltawire
