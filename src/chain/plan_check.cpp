#include "chain/plan_check.h"

#include <string>

namespace deltawire {
namespace {

// The hop just taken; none: what came before was a manifest that was read.
using Arrival = std::optional<size_t>;

// Parent digests and sums along single versions, one after the other.
bool check_versions(const PathStep& step, Digest digest, Arrival arrived_by, PlanRecords* records) {
  uint64_t chain_bytes = step.from->chain_bytes;
  for (uint64_t v = step.from->version + 1; v <= step.to.version; ++v) {
    const PlanLink& link = records->link(v);
    if (link.base != v - 1) {
      records->rule_out_version(v, "is a delta onto version " + std::to_string(*link.base) +
                                       ", expected " + std::to_string(v - 1));
      return false;
    }
    std::string wrong;
    if (*link.parent != digest) {
      wrong = "parent: expected " + digest.hex() + ", got " + link.parent->hex();
    } else if (link.chain_bytes != chain_bytes + link.bytes) {
      wrong = "chain_bytes: expected " + std::to_string(chain_bytes + link.bytes) + ", got " +
              std::to_string(link.chain_bytes);
    }
    if (!wrong.empty() && arrived_by) {
      records->rule_out_hop(*arrived_by,
                            "does not lead to version " + std::to_string(v) + ": " + wrong);
      return false;
    }
    if (!wrong.empty()) {
      records->rule_out_version(v, wrong);
      return false;
    }
    digest = link.digest;
    chain_bytes = link.chain_bytes;
    arrived_by.reset();
  }
  return true;
}

// A hop begins at another manifest of `version` than the path arrived with: the manifest
// itself says who is wrong.
Status settle(uint64_t version, size_t leaving, const Digest& leaving_from, Arrival arriving,
              const Digest& arrived_at, PlanRecords* records) {
  if (arriving) DW_RETURN_IF_ERROR(records->fetch_links({version}));
  const PlanLink* link = records->find(version);
  const Digest* truth = !arriving ? &arrived_at : link == nullptr ? nullptr : &link->digest;
  const std::string own = "that of version " + std::to_string(version);
  if (truth == nullptr || leaving_from != *truth) {
    records->rule_out_hop(leaving, "begins at manifest " + leaving_from.hex() + ", not at " + own);
  }
  if (arriving && (truth == nullptr || arrived_at != *truth)) {
    records->rule_out_hop(*arriving, "leads to manifest " + arrived_at.hex() + ", not to " + own);
  }
  return {};
}

}  // namespace

Result<bool> check_path(const std::vector<PathStep>& path, const Digest& held, const Digest& target,
                        PlanRecords* records) {
  Arrival arrived_by;
  Digest digest = held;
  for (const PathStep& step : path) {
    if (!step.hop) {
      if (!check_versions(step, digest, arrived_by, records)) return false;
      const PlanLink& end = records->link(step.to.version);
      if (end.chain_bytes != step.to.chain_bytes) {
        const size_t next = *(&step + 1)->hop;  // only its name said so
        records->rule_out_hop(next, "its base has chain_bytes " + std::to_string(end.chain_bytes));
        return false;
      }
      digest = end.digest;
      arrived_by.reset();
      continue;
    }
    if (const auto full = records->full_version(*step.hop)) {
      digest = records->link(*full).digest;
      arrived_by.reset();
      continue;
    }
    const HopRecord& hop = records->hop(*step.hop);
    if (hop.base && *hop.base_manifest != digest) {
      DW_RETURN_IF_ERROR(
          settle(*hop.base, *step.hop, *hop.base_manifest, arrived_by, digest, records));
      return false;
    }
    digest = hop.manifest;
    arrived_by = *step.hop;
  }
  if (digest == target) return true;
  if (!arrived_by) return internal_error("a path of manifests that ends at another one");
  records->rule_out_hop(*arrived_by,
                        "leads to manifest " + digest.hex() + ", the version's is " + target.hex());
  return false;
}

}  // namespace deltawire
