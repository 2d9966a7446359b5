// Hop records of a chain: anchors and merged deltas. Their names say what a plan needs, so that a
// listing is enough to choose; their records say what to fetch.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "chain/chain.h"
#include "chain/names.h"

namespace deltawire {

// The hop records that lead to versions `first` ... `last`, by version, as far as `max_pages`
// requests show them. Names that are not those of hop records are passed over: a stranger's object
// is no error.
Result<std::vector<HopName>> list_hops(const Chain& chain, uint64_t first, uint64_t last,
                                       size_t max_pages);

// Checked: record, run, that it says what its name says, and that its parts lie where parts may.
Result<HopRecord> read_hop(const Chain& chain, const HopName& name);
// The same from the bytes of its object.
Result<HopRecord> read_hop(const Chain& chain, const HopName& name, std::string_view text);

// Adds a hop record to `version`: from `base`, or, when that is null, from nothing. Its parts must
// be in the store: each is looked for first. Conflict when there is such a hop record already,
// unless it is to be replaced.
Status add_hop(const Chain& chain, const VersionRecord* base, const VersionRecord& version,
               std::vector<PartRef> parts, bool replace = false);

// Whether all of them are in the store, with the sizes that they should have.
Result<bool> are_there(Store& store, const std::vector<PartRef>& parts);
// Whether a hop record can be used: its record can be read (and is trusted, where keys are), fits
// the manifests at both ends, and its parts are there with their sizes. A name alone says nothing.
Result<bool> is_usable(const Chain& chain, const HopName& name);

// Corruption unless every part has a proper name under `prefix`.
Status check_part_names(const std::vector<PartRef>& parts, std::string_view prefix);

// Adding a hop record when it may be there already, or when the store's answer may have been lost.
enum class EnsuredHop : uint8_t {
  kAdded,
  kThere,  // another made the same: ours is not referred to and may go
};

// An unusable hop record of this name (its record is damaged or signed with an untrusted key, its
// parts are missing or truncated) is replaced; other unusable ones between the same versions are
// removed. After a failure the hop record may still appear, so its parts must stay. `replace`: the
// caller knows that what has this name is of no use.
Result<EnsuredHop> ensure_hop(const Chain& chain, const VersionRecord* base,
                              const VersionRecord& version, const std::vector<PartRef>& parts,
                              bool replace = false);

}  // namespace deltawire
