#include "chain/shortcut.h"

#include "base/log.h"
#include "chain/edges.h"

namespace deltawire {
namespace {

EdgeName name_of(const VersionRecord* base, const VersionRecord& version,
                 const std::vector<PartRef>& parts) {
  EdgeName name{version.manifest.version, {}, 0, 0, version.manifest.chain_bytes};
  for (const PartRef& part : parts) name.bytes += part.size_bytes;
  if (base != nullptr) {
    name.base = base->manifest.version;
    name.base_chain_bytes = base->manifest.chain_bytes;
  }
  return name;
}

// Readers would try these first, or `fsck` complain for ever. What cannot be removed now does no
// more harm than before.
void remove_unusable(const Chain& chain, const EdgeName& ours) {
  const auto edges = list_edges(chain, ours.version, ours.version, SIZE_MAX);
  if (!edges.ok()) return;
  for (const EdgeName& other : *edges) {
    if (other == ours || other.base != ours.base) continue;
    const Result<bool> usable = is_usable(chain, other);
    if (usable.ok() && !*usable) (void)chain.store().remove(edge_name(other));
  }
}

}  // namespace

Result<Shortcut> add_shortcut(const Chain& chain, const VersionRecord* base,
                              const VersionRecord& version, const std::vector<PartRef>& parts,
                              bool replace) {
  const EdgeName name = name_of(base, version, parts);
  Status status = add_edge(chain, base, version, parts, replace);
  if (status.code() == Code::kConflict) {
    DW_ASSIGN_OR_RETURN(const bool usable, is_usable(chain, name));
    if (usable) {
      // A put that was tried again finds what its first attempt has left.
      DW_ASSIGN_OR_RETURN(const Edge there, read_edge(chain, name));
      return there.parts == parts ? Shortcut::kAdded : Shortcut::kThere;
    }
    log_event(LogLevel::kWarning, "chain.shortcut_replaced", {{"object", edge_name(name)}});
    status = add_edge(chain, base, version, parts, true);
  }
  DW_RETURN_IF_ERROR(std::move(status));
  remove_unusable(chain, name);
  return Shortcut::kAdded;
}

}  // namespace deltawire
