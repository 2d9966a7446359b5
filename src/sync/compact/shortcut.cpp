#include "sync/compact/shortcut.h"

#include "chain/edges.h"

namespace deltawire {

Result<Shortcut> add_shortcut(const Chain& chain, const VersionRecord* base,
                              const VersionRecord& version, const std::vector<PartRef>& parts) {
  Status status = add_edge(chain, base, version, parts);
  if (status.ok()) return Shortcut::kAdded;
  if (status.code() != Code::kConflict) return status;
  // A put that was tried again finds what its first attempt has left.
  uint64_t bytes = 0;
  for (const PartRef& part : parts) bytes += part.size_bytes;
  EdgeName name{version.manifest.version, {}, bytes, 0, version.manifest.chain_bytes};
  if (base != nullptr) {
    name.base = base->manifest.version;
    name.base_chain_bytes = base->manifest.chain_bytes;
  }
  DW_ASSIGN_OR_RETURN(const Edge there, read_edge(chain, name));
  return there.parts == parts ? Shortcut::kAdded : Shortcut::kThere;
}

}  // namespace deltawire
