#include "chain/ensure_hop.h"

#include "base/log.h"
#include "chain/hop_records.h"

namespace deltawire {
namespace {

HopName name_of(const VersionRecord* base, const VersionRecord& version,
                const std::vector<PartRef>& parts) {
  HopName name{version.manifest.version, {}, 0, 0, version.manifest.chain_bytes};
  for (const PartRef& part : parts) name.bytes += part.size_bytes;
  if (base != nullptr) {
    name.base = base->manifest.version;
    name.base_chain_bytes = base->manifest.chain_bytes;
  }
  return name;
}

// Readers would try these first, or `fsck` complain for ever. What cannot be removed now does no
// more harm than before.
void remove_unusable(const Chain& chain, const HopName& ours) {
  const auto hops = list_hops(chain, ours.version, ours.version, SIZE_MAX);
  if (!hops.ok()) return;
  for (const HopName& other : *hops) {
    if (other == ours || other.base != ours.base) continue;
    const Result<bool> usable = is_usable(chain, other);
    if (usable.ok() && !*usable) (void)chain.store().remove(hop_name(other));
  }
}

}  // namespace

Result<EnsuredHop> ensure_hop(const Chain& chain, const VersionRecord* base,
                              const VersionRecord& version, const std::vector<PartRef>& parts,
                              bool replace) {
  const HopName name = name_of(base, version, parts);
  Status status = add_hop(chain, base, version, parts, replace);
  if (status.code() == Code::kConflict) {
    DW_ASSIGN_OR_RETURN(const bool usable, is_usable(chain, name));
    if (usable) {
      // A put that was tried again finds what its first attempt has left.
      DW_ASSIGN_OR_RETURN(const HopRecord there, read_hop(chain, name));
      return there.parts == parts ? EnsuredHop::kAdded : EnsuredHop::kThere;
    }
    log_event(LogLevel::kWarning, "chain.hop_replaced", {{"object", hop_name(name)}});
    status = add_hop(chain, base, version, parts, true);
  }
  DW_RETURN_IF_ERROR(std::move(status));
  remove_unusable(chain, name);
  return EnsuredHop::kAdded;
}

}  // namespace deltawire
