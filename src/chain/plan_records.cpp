#include "chain/plan_records.h"

#include "chain/edges.h"
#include "chain/names.h"
#include "chain/requests.h"

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
  full_versions_[shortcuts_.size()] = version;
  shortcuts_.push_back({version, {}, own.bytes, 0, own.chain_bytes});
  graph_.add_shortcut(shortcuts_.back());
}

std::optional<uint64_t> PlanRecords::full_version(size_t shortcut) const {
  const auto found = full_versions_.find(shortcut);
  return found == full_versions_.end() ? std::nullopt : std::optional(found->second);
}

void PlanRecords::add_shortcut(const EdgeName& name) {
  if (!known_.insert(edge_name(name)).second) return;
  shortcuts_.push_back(name);
  graph_.add_shortcut(name);
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

Status PlanRecords::fetch_edges(std::vector<size_t> shortcuts) {
  std::erase_if(shortcuts, [&](size_t s) { return edges_.contains(s); });
  std::vector<Result<Edge>> got(shortcuts.size(), Result<Edge>(Edge{}));
  request_in_parallel(shortcuts.size(),
                      [&](size_t i) { got[i] = read_edge(chain_, shortcuts_[shortcuts[i]]); });
  for (size_t i = 0; i < shortcuts.size(); ++i) {
    if (got[i].ok()) {
      const Status usable = check_parts(got[i]->parts);
      edges_[shortcuts[i]] = std::move(*got[i]);
      if (!usable.ok()) rule_out_shortcut(shortcuts[i], usable);
      continue;
    }
    if (!is_damage(got[i].status())) return got[i].status();
    rule_out_shortcut(shortcuts[i], got[i].status());
  }
  return {};
}

Status PlanRecords::check_parts(const std::vector<PartRef>& parts) const {
  for (const PartRef& part : parts) {
    if (avoid_.contains(part.name)) {
      return corruption(chain_.store().url() + "/" + part.name + ": is damaged or gone");
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

void PlanRecords::rule_out_shortcut(size_t shortcut, Status why) {
  note(std::move(why));
  graph_.drop(shortcut);
}

void PlanRecords::rule_out_shortcut(size_t shortcut, std::string_view why) {
  rule_out_shortcut(shortcut,
                    corruption(chain_.store().url() + "/" + edge_name(shortcuts_[shortcut]) + ": " +
                               std::string(why)));
}

void PlanRecords::note(Status status) {
  if (status.code() == Code::kNotFound) return;
  notes_.push_back(status.to_string());
  if (first_obstacle_.ok()) first_obstacle_ = std::move(status);
}

}  // namespace deltawire
