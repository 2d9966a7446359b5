// A plan is made from names and sums, then checked against the records along its path. What a
// record says otherwise is learned, and the plan made again: each round rules something out.
#include "chain/plan.h"

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <string>

#include "base/thread_pool.h"
#include "chain/edges.h"
#include "chain/names.h"
#include "chain/plan_graph.h"

namespace deltawire {
namespace {

constexpr unsigned kThreads = 8;   // requests at once: a store has latency
constexpr size_t kManyPages = 64;  // of shortcuts, where a plan needs them
constexpr size_t kFewPages = 4;    // where they are unlikely to beat an anchor
constexpr unsigned kMostRounds = 256;
constexpr size_t kNone = size_t(-1);   // no shortcut
constexpr unsigned kMostAnchors = 16;  // that are tried, newest first

// What a plan needs of a manifest; the digests of tensors are left behind.
struct Link {
  bool full = false;
  std::optional<uint64_t> base;
  std::optional<Digest> parent;
  Digest digest;
  std::vector<PartRef> parts;
  uint64_t bytes = 0, chain_bytes = 0, anchor = 0;
};

Link link_of(const VersionRecord& record) {
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

// A record that is gone, or that cannot be what it says: something to go around. Anything else (the
// network, the disk) ends the planning.
bool is_obstacle(const Status& status) {
  return status.code() == Code::kNotFound || status.code() == Code::kCorruption ||
         status.code() == Code::kUnsupported;
}

class Planner {
 public:
  Planner(const Chain& chain, const std::optional<Held>& held, uint64_t target,
          const std::set<std::string>& avoid)
      : chain_(chain), held_(held), target_number_(target), avoid_(avoid) {}

  Result<Plan> run(const VersionRecord* record) {
    if (record != nullptr) {
      target_ = *record;
    } else {
      DW_ASSIGN_OR_RETURN(target_, chain_.version(target_number_));
    }
    links_[target_number_] = link_of(target_);
    if (held_ && held_->version == target_number_) {
      DW_RETURN_IF_ERROR(check_held(target_.digest));
      return finish({});
    }
    const Status usable = check_parts(links_.at(target_number_).parts);
    if (!usable.ok()) {
      rule_out_run(target_number_, usable);
    } else if (is_next_of_held(target_number_)) {
      const Link& link = links_.at(target_number_);
      DW_RETURN_IF_ERROR(check_held(*link.parent));
      if (link.bytes <= target_.manifest.anchor_bytes) {  // what else could be cheaper?
        start_ = point_before(target_number_);
        return finish({{start_, {}, point_of(target_number_)}});
      }
    }
    DW_RETURN_IF_ERROR(look_around());
    return search();
  }

 private:
  // ---- what is known

  PathPoint point_of(uint64_t version) const { return {version, links_.at(version).chain_bytes}; }
  PathPoint point_before(uint64_t version) const {
    const Link& link = links_.at(version);
    return {version - 1, link.chain_bytes - link.bytes};
  }
  // Whether this version, which was read, is the delta that follows the held one.
  bool is_next_of_held(uint64_t version) const {
    const auto link = links_.find(version);
    return held_ && held_->version + 1 == version && link != links_.end() &&
           link->second.base == held_->version;
  }

  Status check_held(const Digest& expected) const {
    return held_->manifest == expected ? Status() : not_this_chain(chain_, *held_, expected);
  }

  // Something to go around: the first one is the answer when there is no way around.
  void note(Status status) {
    if (status.code() == Code::kNotFound) return;
    plan_.notes.push_back(status.to_string());
    if (first_obstacle_.ok()) first_obstacle_ = std::move(status);
  }
  Status bad_version(uint64_t version, std::string_view what) const {
    return corruption(chain_.store().url() + "/" + manifest_name(version) + ": " +
                      std::string(what));
  }
  Status bad_shortcut(size_t shortcut, std::string_view what) const {
    return corruption(chain_.store().url() + "/" + edge_name(shortcuts_[shortcut]) + ": " +
                      std::string(what));
  }
  Status check_parts(const std::vector<PartRef>& parts) const {
    for (const PartRef& part : parts) {
      if (avoid_.contains(part.name)) {
        return corruption(chain_.store().url() + "/" + part.name + ": is damaged or gone");
      }
    }
    return {};
  }
  void rule_out_run(uint64_t version, Status why) {
    note(std::move(why));
    graph_.cut(version);
  }
  void rule_out_shortcut(size_t shortcut, Status why) {
    note(std::move(why));
    graph_.drop(shortcut);
  }

  void add_shortcut(const EdgeName& name) {
    if (known_.insert(edge_name(name)).second) {
      shortcuts_.push_back(name);
      graph_.add_shortcut(name);
    }
  }
  // A version that is stored whole begins paths and ends runs.
  void add_full(uint64_t version) {
    const Link& link = links_.at(version);
    graph_.cut(version);
    full_versions_[shortcuts_.size()] = version;
    shortcuts_.push_back({version, {}, link.bytes, 0, link.chain_bytes});
    graph_.add_shortcut(shortcuts_.back());
  }

  // ---- requests

  // Reads these manifests, several at once. Obstacles cut their version off.
  Status fetch_links(std::vector<uint64_t> versions) {
    std::erase_if(versions, [&](uint64_t v) { return links_.contains(v); });
    std::vector<Result<Link>> got(versions.size(), Result<Link>(Link{}));
    in_parallel(versions.size(), [&](size_t i) {
      Result<VersionRecord> record = chain_.version(versions[i]);
      got[i] = record.ok() ? Result<Link>(link_of(*record)) : record.status();
    });
    for (size_t i = 0; i < versions.size(); ++i) {
      if (got[i].ok()) {
        const bool full = got[i]->full;
        const Status usable = check_parts(got[i]->parts);
        links_[versions[i]] = std::move(*got[i]);
        if (!usable.ok()) {
          rule_out_run(versions[i], usable);
        } else if (full) {
          add_full(versions[i]);
        }
        continue;
      }
      if (!is_obstacle(got[i].status())) return got[i].status();
      rule_out_run(versions[i], got[i].status());
    }
    return {};
  }

  Status fetch_edges(std::vector<size_t> shortcuts) {
    std::erase_if(shortcuts, [&](size_t s) { return edges_.contains(s); });
    std::vector<Result<Edge>> got(shortcuts.size(), Result<Edge>(Edge{}));
    in_parallel(shortcuts.size(),
                [&](size_t i) { got[i] = read_edge(chain_, shortcuts_[shortcuts[i]]); });
    for (size_t i = 0; i < shortcuts.size(); ++i) {
      if (got[i].ok()) {
        const Status usable = check_parts(got[i]->parts);
        edges_[shortcuts[i]] = std::move(*got[i]);
        if (!usable.ok()) rule_out_shortcut(shortcuts[i], usable);
        continue;
      }
      if (!is_obstacle(got[i].status())) return got[i].status();
      rule_out_shortcut(shortcuts[i], got[i].status());
    }
    return {};
  }

  void in_parallel(size_t n, const std::function<void(size_t)>& body) {
    if (n == 0) return;
    ThreadPool pool(unsigned(std::min<size_t>(n, kThreads)));
    pool.parallel_for(n, [&](size_t i, unsigned) { body(i); });
  }

  // ---- the search

  // What one round of requests can tell: the held version and the shortcuts after it, or after the
  // newest anchor that the target knows of.
  Status look_around() {
    const Manifest& m = target_.manifest;
    oldest_anchor_ = m.anchor;
    const Link& own = links_.at(target_number_);
    if (own.full && check_parts(own.parts).ok()) add_full(target_number_);
    const bool ahead_of_anchor =
        held_ && held_->version >= m.anchor && held_->version < target_number_;
    const uint64_t first = ahead_of_anchor ? held_->version + 1 : m.anchor;
    Result<VersionRecord> record = not_found("");
    Result<std::vector<EdgeName>> names = std::vector<EdgeName>();
    in_parallel(held_ ? 2 : 1, [&](size_t i) {
      if (i == 0) names = list_edges(chain_, first, target_number_, kManyPages);
      if (i == 1) record = chain_.version(held_->version);
    });
    DW_RETURN_IF_ERROR(Status(names.status()));
    for (const EdgeName& name : *names) add_shortcut(name);
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
      links_[held_->version] = link_of(*record);
      if (next <= target_number_) start_ = point_of(held_->version);
    } else if (!is_obstacle(record.status())) {
      return record.status();
    } else if (next <= target_number_) {
      note(record.status());
      DW_RETURN_IF_ERROR(fetch_links({next}));
      const auto link = links_.find(next);
      if (link != links_.end() && link->second.parent) {
        DW_RETURN_IF_ERROR(check_held(*link->second.parent));
      }
      if (is_next_of_held(next)) start_ = point_before(next);
    }
    if (start_) graph_.start_at(*start_);
    return {};
  }

  // Takes note of the anchor at `oldest_anchor_`: a shortcut that was listed, or a version.
  Status look_at_anchor() {
    ++anchors_;
    for (const EdgeName& name : shortcuts_) {
      if (!name.base && name.version == oldest_anchor_) return {};
    }
    return fetch_links({oldest_anchor_});
  }

  // Shortcuts between the held version and the anchor. Where single deltas cost more than the
  // anchor, only merged ones can be cheaper, and a few pages show whether there are any.
  Status look_before_anchor() {
    const Manifest& m = target_.manifest;
    const uint64_t all_deltas = m.chain_bytes - std::min(start_->chain_bytes, m.chain_bytes);
    const size_t pages = all_deltas <= m.anchor_bytes ? kManyPages : kFewPages;
    if (oldest_anchor_ <= start_->version + 1) return {};
    DW_ASSIGN_OR_RETURN(const auto names,
                        list_edges(chain_, start_->version + 1, oldest_anchor_ - 1, pages));
    for (const EdgeName& name : names) add_shortcut(name);
    return {};
  }

  // Nothing leads to the target so far: looks at the next older anchor, and what leads on from it.
  // False when there is none.
  Result<bool> look_further_back() {
    uint64_t last = target_number_;
    if (anchors_ != 0) {
      if (anchors_ == kMostAnchors || oldest_anchor_ == 0) return false;
      last = oldest_anchor_ - 1;
      DW_RETURN_IF_ERROR(fetch_links({last}));
      const auto link = links_.find(last);
      if (link == links_.end()) return false;
      oldest_anchor_ = link->second.anchor;
    }
    DW_ASSIGN_OR_RETURN(const auto names, list_edges(chain_, oldest_anchor_, last, kManyPages));
    for (const EdgeName& name : names) add_shortcut(name);
    DW_RETURN_IF_ERROR(look_at_anchor());
    return true;
  }

  Result<Plan> search() {
    for (unsigned round = 0; round < kMostRounds;) {
      const auto path = graph_.cheapest(point_of(target_number_));
      if (!path) {
        DW_ASSIGN_OR_RETURN(const bool more, look_further_back());
        if (!more) break;
        continue;
      }
      ++round;
      DW_RETURN_IF_ERROR(fetch_path(*path));
      DW_ASSIGN_OR_RETURN(const bool holds, check_path(*path));
      if (holds) return finish(*path);
    }
    if (!first_obstacle_.ok()) return first_obstacle_;
    return not_found(chain_.store().url() + ": no path leads to version " +
                     std::to_string(target_number_) +
                     (held_ ? " from version " + std::to_string(held_->version) : "") +
                     ": what it builds upon was pruned");
  }

  Status fetch_path(const std::vector<PathStep>& path) {
    std::vector<uint64_t> versions;
    std::vector<size_t> shortcuts;
    for (const PathStep& step : path) {
      if (step.shortcut && !full_versions_.contains(*step.shortcut)) {
        shortcuts.push_back(*step.shortcut);
      }
      for (uint64_t v = step.from ? step.from->version + 1 : 0;
           !step.shortcut && v <= step.to.version; ++v) {
        versions.push_back(v);
      }
    }
    ruled_out_ = graph_.num_ruled_out();
    DW_RETURN_IF_ERROR(fetch_links(std::move(versions)));
    return fetch_edges(std::move(shortcuts));
  }

  // Whether all records along the path are there and fit together. If not, what does not is ruled
  // out.
  Result<bool> check_path(const std::vector<PathStep>& path) {
    if (graph_.num_ruled_out() != ruled_out_) return false;
    size_t arrived_by = kNone;  // the shortcut just taken
    Digest digest = held_ ? held_->manifest : Digest{};
    for (const PathStep& step : path) {
      if (!step.shortcut) {
        if (!check_run(step, digest, arrived_by)) return false;
        const Link& end = links_.at(step.to.version);
        if (end.chain_bytes != step.to.chain_bytes) {
          const size_t next = *(&step + 1)->shortcut;  // only its name said so
          rule_out_shortcut(next, bad_shortcut(next, "its base has chain_bytes " +
                                                         std::to_string(end.chain_bytes)));
          return false;
        }
        digest = end.digest;
        arrived_by = kNone;
        continue;
      }
      if (const auto full = full_versions_.find(*step.shortcut); full != full_versions_.end()) {
        digest = links_.at(full->second).digest;
        arrived_by = kNone;
        continue;
      }
      const Edge& edge = edges_.at(*step.shortcut);
      if (edge.base && *edge.base_manifest != digest) {
        DW_RETURN_IF_ERROR(
            settle(*edge.base, *step.shortcut, *edge.base_manifest, arrived_by, digest));
        return false;
      }
      digest = edge.manifest;
      arrived_by = *step.shortcut;
    }
    if (digest == target_.digest) return true;
    if (arrived_by == kNone) return internal_error("a path of manifests that ends at another one");
    rule_out_shortcut(arrived_by,
                      bad_shortcut(arrived_by, "leads to manifest " + digest.hex() +
                                                   ", the version's is " + target_.digest.hex()));
    return false;
  }

  // Parent digests and sums along a run of single versions.
  bool check_run(const PathStep& step, Digest digest, size_t arrived_by) {
    uint64_t chain_bytes = step.from->chain_bytes;
    for (uint64_t v = step.from->version + 1; v <= step.to.version; ++v) {
      const Link& link = links_.at(v);
      if (link.base != v - 1) {
        rule_out_run(v, bad_version(v, "is a delta onto version " + std::to_string(*link.base) +
                                           ", expected " + std::to_string(v - 1)));
        return false;
      }
      std::string wrong;
      if (*link.parent != digest) {
        wrong = "parent: expected " + digest.hex() + ", got " + link.parent->hex();
      } else if (link.chain_bytes != chain_bytes + link.bytes) {
        wrong = "chain_bytes: expected " + std::to_string(chain_bytes + link.bytes) + ", got " +
                std::to_string(link.chain_bytes);
      }
      if (!wrong.empty() && arrived_by != kNone) {
        rule_out_shortcut(arrived_by,
                          bad_shortcut(arrived_by, "does not lead to version " + std::to_string(v) +
                                                       ": " + wrong));
        return false;
      }
      if (!wrong.empty()) {
        rule_out_run(v, bad_version(v, wrong));
        return false;
      }
      digest = link.digest;
      chain_bytes = link.chain_bytes;
      arrived_by = kNone;
    }
    return true;
  }

  // A shortcut begins at another manifest of `version` than the path arrived with: the manifest
  // itself says who is wrong.
  Status settle(uint64_t version, size_t leaving, const Digest& leaving_from, size_t arriving,
                const Digest& arrived_at) {
    if (arriving != kNone) DW_RETURN_IF_ERROR(fetch_links({version}));
    const auto link = links_.find(version);
    const Digest* truth = arriving == kNone      ? &arrived_at
                          : link == links_.end() ? nullptr
                                                 : &link->second.digest;
    if (truth == nullptr || leaving_from != *truth) {
      rule_out_shortcut(leaving, bad_shortcut(leaving, "begins at manifest " + leaving_from.hex() +
                                                           ", not at that of version " +
                                                           std::to_string(version)));
    }
    if (arriving != kNone && (truth == nullptr || arrived_at != *truth)) {
      rule_out_shortcut(arriving, bad_shortcut(arriving, "leads to manifest " + arrived_at.hex() +
                                                             ", not to that of version " +
                                                             std::to_string(version)));
    }
    return {};
  }

  // ---- the result

  Result<Plan> finish(const std::vector<PathStep>& path) {
    for (const PathStep& step : path) {
      if (!step.shortcut) {
        for (uint64_t v = step.from->version + 1; v <= step.to.version; ++v) {
          add_hop(HopKind::kVersion, v - 1, v, links_.at(v).parts);
        }
      } else if (const auto full = full_versions_.find(*step.shortcut);
                 full != full_versions_.end()) {
        add_hop(HopKind::kAnchor, {}, full->second, links_.at(full->second).parts);
      } else {
        const Edge& edge = edges_.at(*step.shortcut);
        add_hop(edge.base ? HopKind::kMerged : HopKind::kAnchor, edge.base, edge.version,
                edge.parts);
      }
    }
    const Manifest& m = target_.manifest;
    const uint64_t from = path.empty() ? m.chain_bytes : start_ ? start_->chain_bytes : 0;
    plan_.all_deltas_bytes = m.chain_bytes - std::min(from, m.chain_bytes);
    plan_.anchor_bytes = m.anchor_bytes;
    DW_ASSIGN_OR_RETURN(plan_.schema, chain_.schema(m));
    plan_.target = std::move(target_);
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
  const std::set<std::string>& avoid_;

  VersionRecord target_;
  std::optional<PathPoint> start_;            // the held version, when a path may begin there
  std::map<uint64_t, Link> links_;            // manifests read
  std::vector<EdgeName> shortcuts_;           // numbered as in graph_
  std::set<std::string> known_;               // their names
  std::map<size_t, Edge> edges_;              // records read, by number
  std::map<size_t, uint64_t> full_versions_;  // shortcuts that are versions themselves
  PlanGraph graph_;
  uint64_t oldest_anchor_ = 0;
  unsigned anchors_ = 0;  // looked at
  size_t ruled_out_ = 0;
  Status first_obstacle_;
  Plan plan_;
};

}  // namespace

Status not_this_chain(const Chain& chain, const Held& held, const Digest& digest) {
  return base_mismatch(chain.store().url() + ": version " + std::to_string(held.version) +
                       " has manifest " + digest.hex() + ", but what is held came from " +
                       held.manifest.hex() + ": another history");
}

Result<Plan> plan_catch_up(const Chain& chain, const std::optional<Held>& held, uint64_t target,
                           const VersionRecord* record, const std::set<std::string>& avoid) {
  return Planner(chain, held, target, avoid).run(record);
}

}  // namespace deltawire
