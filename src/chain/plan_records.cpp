#include "chain/plan_records.h"

#include <string>

#include "chain/hop_records.h"
#include "chain/names.h"
#include "chain/read_records.h"

namespace deltawire {
namespace {

PlanLink link_of(const VersionRecord& record) {
  const Manifest& m = record.manifest;
  return {m.kind == VersionKind::kFull,
          m.base,
          m.parent,
          record.digest,
          m.parts,
          m.part_bytes(),
          m.chain_bytes,
          m.anchor};
}

}  // namespace

void PlanRecords::add(uint64_t version, const VersionRecord& record) {
  links_[version] = link_of(record);
}

const PlanLink* PlanRecords::find(uint64_t version) const {
  const auto found = links_.find(version);
  return found == links_.end() ? nullptr : &found->second;
}

PathPoint PlanRecords::point_of(uint64_t version) const {
  return {version, link(version).chain_bytes};
}

PathPoint PlanRecords::point_before(uint64_t version) const {
  const PlanLink& own = link(version);
  return {version - 1, own.chain_bytes - own.bytes};
}

void PlanRecords::add_full(uint64_t version) {
  const PlanLink& own = link(version);
  graph_.cut(version);
  full_versions_[hops_.size()] = version;
  hops_.push_back({version, {}, own.bytes, 0, own.chain_bytes});
  graph_.add_hop(hops_.back());
}

std::optional<uint64_t> PlanRecords::full_version(size_t hop) const {
  const auto found = full_versions_.find(hop);
  return found == full_versions_.end() ? std::nullopt : std::optional(found->second);
}

void PlanRecords::add_candidate(const HopName& name) {
  if (!known_.insert(hop_name(name)).second) return;
  hops_.push_back(name);
  graph_.add_hop(name);
}

Status PlanRecords::fetch_links(std::vector<uint64_t> versions) {
  std::erase_if(versions, [&](uint64_t v) { return links_.contains(v); });
  std::vector<Result<PlanLink>> got(versions.size(), Result<PlanLink>(PlanLink{}));
  request_in_parallel(versions.size(), [&](size_t i) {
    Result<VersionRecord> record = chain_.version(versions[i]);
    got[i] = record.ok() ? Result<PlanLink>(link_of(*record)) : record.status();
  });
  for (size_t i = 0; i < versions.size(); ++i) {
    if (got[i].ok()) {
      const bool full = got[i]->full;
      const Status usable = check_parts(got[i]->parts);
      links_[versions[i]] = std::move(*got[i]);
      if (!usable.ok()) {
        rule_out_version(versions[i], usable);
      } else if (full) {
        add_full(versions[i]);
      }
      continue;
    }
    if (!is_damage(got[i].status())) return got[i].status();
    rule_out_version(versions[i], got[i].status());
  }
  return {};
}

Status PlanRecords::fetch_hops(std::vector<size_t> hops) {
  std::erase_if(hops, [&](size_t s) { return hop_records_.contains(s); });
  std::vector<Result<HopRecord>> got(hops.size(), Result<HopRecord>(HopRecord{}));
  request_in_parallel(hops.size(), [&](size_t i) { got[i] = read_hop(chain_, hops_[hops[i]]); });
  for (size_t i = 0; i < hops.size(); ++i) {
    if (got[i].ok()) {
      const Status usable = check_parts(got[i]->parts);
      hop_records_[hops[i]] = std::move(*got[i]);
      if (!usable.ok()) rule_out_hop(hops[i], usable);
      continue;
    }
    if (!is_damage(got[i].status())) return got[i].status();
    rule_out_hop(hops[i], got[i].status());
  }
  return {};
}

Status PlanRecords::check_parts(const std::vector<PartRef>& parts) const {
  for (const PartRef& part : parts) {
    if (avoid_.contains(part.name)) {
      return corruption(chain_.store().url() + "/" + part.name + ": is damaged or missing");
    }
  }
  return {};
}

void PlanRecords::rule_out_version(uint64_t version, Status why) {
  note(std::move(why));
  graph_.cut(version);
}

void PlanRecords::rule_out_version(uint64_t version, std::string_view why) {
  rule_out_version(version, corruption(chain_.store().url() + "/" + manifest_name(version) + ": " +
                                       std::string(why)));
}

void PlanRecords::rule_out_hop(size_t hop, Status why) {
  note(std::move(why));
  graph_.drop(hop);
}

void PlanRecords::rule_out_hop(size_t hop, std::string_view why) {
  rule_out_hop(
      hop, corruption(chain_.store().url() + "/" + hop_name(hops_[hop]) + ": " + std::string(why)));
}

void PlanRecords::note(Status status) {
  if (status.code() == Code::kNotFound) return;
  notes_.push_back(status.to_string());
  if (first_obstacle_.ok()) first_obstacle_ = std::move(status);
}

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
  if (!arrived_by) return internal_error("the path ends at another manifest");
  records->rule_out_hop(*arrived_by,
                        "leads to manifest " + digest.hex() + ", the version's is " + target.hex());
  return false;
}

}  // namespace deltawire
