// A plan is made from names and sums, then checked against the records along its path. What a
// record says otherwise is learned, and the plan made again: each round rules something out.
#include "chain/plan.h"

#include <algorithm>

#include "chain/hop_records.h"
#include "chain/plan_records.h"
#include "chain/read_records.h"

namespace deltawire {
namespace {

constexpr size_t kManyPages = 64;  // of hops, where a plan needs them
constexpr size_t kFewPages = 4;    // where they are unlikely to beat an anchor
constexpr unsigned kMostRounds = 256;
constexpr unsigned kMostAnchors = 16;  // that are tried, newest first

class Planner {
 public:
  Planner(const Chain& chain, const std::optional<Held>& held, uint64_t target,
          const std::set<std::string>& avoid)
      : chain_(chain), held_(held), target_number_(target), records_(chain, avoid) {}

  Result<Plan> run(const VersionRecord* record) {
    if (record != nullptr) {
      target_ = *record;
    } else {
      DW_ASSIGN_OR_RETURN(target_, chain_.version(target_number_));
    }
    records_.add(target_number_, target_);
    if (held_ && held_->version == target_number_) {
      DW_RETURN_IF_ERROR(check_held(target_.digest));
      return finish({});
    }
    const Status usable = records_.check_parts(records_.link(target_number_).parts);
    if (!usable.ok()) {
      records_.rule_out_version(target_number_, usable);
    } else if (is_next_of_held(target_number_)) {
      const PlanLink& link = records_.link(target_number_);
      DW_RETURN_IF_ERROR(check_held(*link.parent));
      if (link.bytes <= target_.manifest.anchor_bytes) {  // what else could be cheaper?
        start_ = records_.point_before(target_number_);
        return finish({{start_, {}, records_.point_of(target_number_)}});
      }
    }
    DW_RETURN_IF_ERROR(read_what_is_near());
    return search();
  }

 private:
  // ---- what is known

  // Whether this version, which was read, is the delta that follows the held one.
  bool is_next_of_held(uint64_t version) const {
    const PlanLink* link = records_.find(version);
    return held_ && held_->version + 1 == version && link != nullptr &&
           link->base == held_->version;
  }

  Status check_held(const Digest& expected) const {
    return held_->manifest == expected ? Status() : not_this_chain(chain_, *held_, expected);
  }

  // ---- the search

  // What one round of requests can tell: the held version and the hops after it, or after the
  // newest anchor that the target knows of.
  Status read_what_is_near() {
    const Manifest& m = target_.manifest;
    oldest_anchor_ = m.anchor;
    const PlanLink& own = records_.link(target_number_);
    if (own.full && records_.check_parts(own.parts).ok()) records_.add_full(target_number_);
    const bool ahead_of_anchor =
        held_ && held_->version >= m.anchor && held_->version < target_number_;
    const uint64_t first = ahead_of_anchor ? held_->version + 1 : m.anchor;
    Result<VersionRecord> record = not_found("");
    Result<std::vector<HopName>> names = std::vector<HopName>();
    request_in_parallel(held_ ? 2 : 1, [&](size_t i) {
      if (i == 0) names = list_hops(chain_, first, target_number_, kManyPages);
      if (i == 1) record = chain_.version(held_->version);
    });
    DW_RETURN_IF_ERROR(Status(names.status()));
    for (const HopName& name : *names) records_.add_candidate(name);
    if (held_) DW_RETURN_IF_ERROR(look_at_held(record));
    if (ahead_of_anchor && start_) return {};
    DW_RETURN_IF_ERROR(look_at_anchor());
    return start_ ? look_before_anchor() : Status();
  }

  // Where the held version lies in the chain. One that was pruned may still be the base of the
  // next.
  Status look_at_held(const Result<VersionRecord>& record) {
    const uint64_t next = held_->version + 1;
    if (record.ok()) {
      DW_RETURN_IF_ERROR(check_held(record->digest));
      records_.add(held_->version, *record);
      if (next <= target_number_) start_ = records_.point_of(held_->version);
    } else if (!is_damage(record.status())) {
      return record.status();
    } else if (next <= target_number_) {
      records_.note(record.status());
      DW_RETURN_IF_ERROR(records_.fetch_links({next}));
      const PlanLink* link = records_.find(next);
      if (link != nullptr && link->parent) DW_RETURN_IF_ERROR(check_held(*link->parent));
      if (is_next_of_held(next)) start_ = records_.point_before(next);
    }
    if (start_) records_.graph().start_at(*start_);
    return {};
  }

  // Takes note of the anchor at `oldest_anchor_`: a hop that was listed, or a version.
  Status look_at_anchor() {
    ++anchors_;
    for (const HopName& name : records_.hops()) {
      if (!name.base && name.version == oldest_anchor_) return {};
    }
    return records_.fetch_links({oldest_anchor_});
  }

  // Hops between the held version and the anchor. Where single deltas cost more than the
  // anchor, only merged ones can be cheaper, and a few pages show whether there are any.
  Status look_before_anchor() {
    const Manifest& m = target_.manifest;
    const uint64_t all_deltas = m.chain_bytes - std::min(start_->chain_bytes, m.chain_bytes);
    const size_t pages = all_deltas <= m.anchor_bytes ? kManyPages : kFewPages;
    if (oldest_anchor_ <= start_->version + 1) return {};
    DW_ASSIGN_OR_RETURN(const auto names,
                        list_hops(chain_, start_->version + 1, oldest_anchor_ - 1, pages));
    for (const HopName& name : names) records_.add_candidate(name);
    return {};
  }

  // Nothing leads to the target so far: looks at the next older anchor, and what leads on from it.
  // False when there is none.
  Result<bool> look_further_back() {
    uint64_t last = target_number_;
    if (anchors_ != 0) {
      if (anchors_ == kMostAnchors || oldest_anchor_ == 0) return false;
      last = oldest_anchor_ - 1;
      DW_RETURN_IF_ERROR(records_.fetch_links({last}));
      const PlanLink* link = records_.find(last);
      if (link == nullptr) return false;
      oldest_anchor_ = link->anchor;
    }
    DW_ASSIGN_OR_RETURN(const auto names, list_hops(chain_, oldest_anchor_, last, kManyPages));
    for (const HopName& name : names) records_.add_candidate(name);
    DW_RETURN_IF_ERROR(look_at_anchor());
    return true;
  }

  Result<Plan> search() {
    for (unsigned round = 0; round < kMostRounds;) {
      const auto path = records_.graph().cheapest(records_.point_of(target_number_));
      if (!path) {
        DW_ASSIGN_OR_RETURN(const bool more, look_further_back());
        if (!more) break;
        continue;
      }
      ++round;
      DW_RETURN_IF_ERROR(fetch_path(*path));
      DW_ASSIGN_OR_RETURN(const bool good, holds(*path));
      if (good) return finish(*path);
    }
    if (!records_.first_obstacle().ok()) return records_.first_obstacle();
    return not_found(chain_.store().url() + ": no path leads to version " +
                     std::to_string(target_number_) +
                     (held_ ? " from version " + std::to_string(held_->version) : "") +
                     ": versions that it builds on were removed");
  }

  Status fetch_path(const std::vector<PathStep>& path) {
    std::vector<uint64_t> versions;
    std::vector<size_t> hops;
    for (const PathStep& step : path) {
      if (step.hop && !records_.full_version(*step.hop)) {
        hops.push_back(*step.hop);
      }
      for (uint64_t v = step.from ? step.from->version + 1 : 0; !step.hop && v <= step.to.version;
           ++v) {
        versions.push_back(v);
      }
    }
    ruled_out_ = records_.graph().num_ruled_out();
    DW_RETURN_IF_ERROR(records_.fetch_links(std::move(versions)));
    return records_.fetch_hops(std::move(hops));
  }

  // Whether all records along the path are there and fit together. If not, what does not is ruled
  // out.
  Result<bool> holds(const std::vector<PathStep>& path) {
    if (records_.graph().num_ruled_out() != ruled_out_) return false;
    return check_path(path, held_ ? held_->manifest : Digest{}, target_.digest, &records_);
  }

  // ---- the result

  Result<Plan> finish(const std::vector<PathStep>& path) {
    for (const PathStep& step : path) {
      if (!step.hop) {
        for (uint64_t v = step.from->version + 1; v <= step.to.version; ++v) {
          add_hop(HopKind::kVersion, v - 1, v, records_.link(v).parts);
        }
      } else if (const auto full = records_.full_version(*step.hop)) {
        add_hop(HopKind::kAnchor, {}, *full, records_.link(*full).parts);
      } else {
        const HopRecord& hop_record = records_.hop(*step.hop);
        add_hop(hop_record.base ? HopKind::kMerged : HopKind::kAnchor, hop_record.base,
                hop_record.version, hop_record.parts);
      }
    }
    const Manifest& m = target_.manifest;
    const uint64_t from = path.empty() ? m.chain_bytes : start_ ? start_->chain_bytes : 0;
    plan_.all_deltas_bytes = m.chain_bytes - std::min(from, m.chain_bytes);
    plan_.anchor_bytes = m.anchor_bytes;
    DW_ASSIGN_OR_RETURN(plan_.schema, chain_.schema(m));
    plan_.target = std::move(target_);
    plan_.notes = records_.notes();
    return std::move(plan_);
  }

  void add_hop(HopKind kind, std::optional<uint64_t> base, uint64_t version,
               std::vector<PartRef> parts) {
    Hop hop{kind, base, version, std::move(parts), 0};
    for (const PartRef& part : hop.parts) hop.bytes += part.size_bytes;
    plan_.bytes += hop.bytes;
    plan_.hops.push_back(std::move(hop));
  }

  const Chain& chain_;
  const std::optional<Held> held_;
  const uint64_t target_number_;
  PlanRecords records_;

  VersionRecord target_;
  std::optional<PathPoint> start_;  // the held version, when a path may begin there
  uint64_t oldest_anchor_ = 0;
  unsigned anchors_ = 0;  // looked at
  size_t ruled_out_ = 0;
  Plan plan_;
};

}  // namespace

Status not_this_chain(const Chain& chain, const Held& held, const Digest& digest) {
  return base_mismatch(chain.store().url() + ": version " + std::to_string(held.version) +
                       " has manifest " + digest.hex() + ", but the replica holds manifest " +
                       held.manifest.hex() + ": another history");
}

Result<Plan> plan_catch_up(const Chain& chain, const std::optional<Held>& held, uint64_t target,
                           const VersionRecord* record, const std::set<std::string>& avoid) {
  return Planner(chain, held, target, avoid).run(record);
}

}  // namespace deltawire
