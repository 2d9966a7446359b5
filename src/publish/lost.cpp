// A store that has lost versions, or holds others under their numbers. What is published upon one
// of them has no base, or another one, for everybody else.
#include <algorithm>

#include "base/sync_point.h"
#include "chain/hop_records.h"
#include "publish/impl.h"
#include "replica/route.h"

namespace deltawire {

// In words, of the store, which held `known` before; empty: nothing is lost. Versions that gc has
// removed are not.
Result<std::string> Publisher::Impl::find_loss(const Held& known, const Newest& newest) const {
  const std::string last = std::to_string(known.version);
  if (!newest || newest->manifest.version < known.version) {
    const uint64_t first = newest ? newest->manifest.version + 1 : options.origin.first_version;
    return first == known.version ? "lost version " + last
                                  : "lost versions " + std::to_string(first) + " to " + last;
  }
  if (newest->digest == known.manifest) return std::string();
  const Status history = check_history(*chain, known);
  if (history.ok()) return std::string();
  if (history.code() != Code::kCorruption) return history;
  return "holds another version " + last;
}

Status Publisher::Impl::check_loss(const KnownVersion& known, const Newest& newest) const {
  const auto& [version, manifest] = known.version;
  DW_ASSIGN_OR_RETURN(const std::string loss, find_loss(known.version, newest));
  if (loss.empty()) return {};
  const std::string newest_now =
      newest ? "the newest is version " + std::to_string(newest->manifest.version)
             : "there is no version left";
  // What follows another project's versions has them from there, and nothing to publish whole.
  const std::string ways = options.origin.place.empty()
                               ? "restore the store, publish to an empty one as a new run, or set "
                                 "accept_loss to go on from there with a whole version"
                               : "restore the store, or import into an empty one";
  return corruption(store->url() + ": " + loss + " (the manifest of version " +
                    std::to_string(version) + " was " + manifest.hex() +
                    (known.elsewhere.empty() ? "" : ", published to " + known.elsewhere) + "); " +
                    newest_now + ". Nothing was published; " + ways);
}

// Given what the store has under the head's number.
Status Publisher::Impl::check_head(const Result<VersionRecord>& there) const {
  if (there.ok() && there->digest == head->digest) return {};
  if (!there.ok() && there.status().code() != Code::kNotFound) return Status(there.status());
  DW_ASSIGN_OR_RETURN(const std::optional<uint64_t> version, chain->head());
  Newest newest;
  if (version) {
    DW_ASSIGN_OR_RETURN(newest, chain->version(*version));
  }
  DW_RETURN_IF_ERROR(check_loss(known_head(), newest));
  return conflict(store->url() + ": version " + std::to_string(next_version()) +
                  " comes too late: the chain has gone on to version " + std::to_string(*version) +
                  " without it");
}

// What the snapshot's folder says of the store is refused or, if that is asked for, given up.
Status Publisher::Impl::check_noted() {
  std::optional<KnownVersion> known;
  if (on_disk != nullptr) known = known_version(*store, snapshot_folder());
  if (known && known->run != chain->run()) {
    return base_mismatch(snapshot_folder().string() + ": belongs to run " + known->run + ", " +
                         store->url() + " holds run " + chain->run());
  }
  if (!options.accept_loss) return known ? check_loss(*known, head) : Status();
  std::string loss;
  if (known) {
    DW_ASSIGN_OR_RETURN(loss, find_loss(known->version, head));
  }
  if (head) whole_reason = "accept_loss";
  if (!loss.empty()) whole_reason = "the store " + loss;
  accepted_from = known ? std::min(known->version.version, next_version()) : next_version();
  return {};
}

// Anchors and merged deltas of versions that were given up: their numbers will be others'. Before
// the commit, so that they are never beside another version of their number.
Status Publisher::Impl::remove_lost_hops() const {
  DW_ASSIGN_OR_RETURN(const auto hops, list_hops(*chain, accepted_from, kMaxVersion, SIZE_MAX));
  for (const HopName& hop : hops) {
    DW_ASSIGN_OR_RETURN(const bool usable, is_usable(*chain, hop));
    if (usable) continue;  // of a version that is there
    DW_RETURN_IF_ERROR(store->remove(hop_name(hop)));
    DW_SYNC_POINT("publish: hop of a lost version removed");
  }
  return {};
}

// Once for every version that is committed: it may be the last thing that this process does.
void Publisher::Impl::note_head() const {
  if (on_disk == nullptr) return;
  std::optional<KnownVersion> newest;
  if (head) newest = known_head();
  remember_store(*store, snapshot_folder(), newest);
}

}  // namespace deltawire
