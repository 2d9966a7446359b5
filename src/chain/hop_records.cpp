#include "chain/hop_records.h"

#include "base/log.h"
#include "base/sync_point.h"
#include "chain/keys.h"
#include "chain/names.h"

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

Status check_hop(const Chain& chain, const HopName& name, const HopRecord& hop) {
  if (hop.run != chain.run()) {
    return corruption("belongs to run " + hop.run + ", expected " + chain.run());
  }
  if (hop.version != name.version || hop.base != name.base || hop.part_bytes() != name.bytes) {
    const HopName own{hop.version, hop.base, hop.part_bytes(), name.base_chain_bytes,
                      name.chain_bytes};
    return corruption("its record belongs to the name " + hop_name(own));
  }
  return check_part_names(hop.parts, hop.base ? kPartPrefix : kFullPrefix);
}

}  // namespace

Status check_part_names(const std::vector<PartRef>& parts, std::string_view prefix) {
  for (const PartRef& part : parts) {
    if (Status status = check_object_name(part.name); !status.ok()) {
      return corruption(status.message());
    }
    if (!part.name.starts_with(prefix)) {
      return corruption("part " + part.name + " lies outside " + std::string(prefix));
    }
  }
  return {};
}

Result<std::vector<HopName>> list_hops(const Chain& chain, uint64_t first, uint64_t last,
                                       size_t max_pages) {
  std::vector<HopName> found;
  // '-' follows the number in a name, so this sorts before every hop record to `first`.
  std::string after = std::string(kHopPrefix) + number_name(first);
  for (size_t page_number = 0; page_number < max_pages; ++page_number) {
    DW_ASSIGN_OR_RETURN(const auto page, chain.store().list(kHopPrefix, after, kListPage));
    for (const ObjectInfo& object : page) {
      const std::optional<HopName> name = parse_hop_name(object.name);
      if (!name) continue;
      if (name->version > last) return found;
      found.push_back(*name);
    }
    if (page.size() < kListPage) break;
    after = page.back().name;
  }
  return found;
}

Result<HopRecord> read_hop(const Chain& chain, const HopName& name) {
  DW_ASSIGN_OR_RETURN(const std::string text, chain.store().get(hop_name(name), kMaxHopBytes));
  return read_hop(chain, name, text);
}

Result<HopRecord> read_hop(const Chain& chain, const HopName& name, std::string_view text) {
  const std::string place = chain.store().url() + "/" + hop_name(name);
  Result<HopRecord> hop = parse_hop(text, keys_of(chain).trust);
  if (!hop.ok()) return std::move(hop).status().at(place);
  DW_RETURN_IF_ERROR(check_hop(chain, name, *hop).at(place));
  return hop;
}

Result<bool> are_there(Store& store, const std::vector<PartRef>& parts) {
  for (const PartRef& part : parts) {
    const Result<ObjectInfo> info = store.stat(part.name);
    if (!info.ok() && info.status().code() != Code::kNotFound) return info.status();
    if (!info.ok() || info->size_bytes != part.size_bytes) return false;
  }
  return true;
}

Result<bool> is_usable(const Chain& chain, const HopName& name) {
  const Result<HopRecord> hop = read_hop(chain, name);
  const auto good = [](const Status& status) -> Result<bool> {
    if (status.ok()) return true;
    if (is_damage(status)) return false;
    return status;
  };
  DW_ASSIGN_OR_RETURN(bool usable, good(hop.status()));
  if (!usable || !is_signed_for(chain, hop->signed_by)) return false;
  const Result<VersionRecord> version = chain.version(name.version);
  DW_ASSIGN_OR_RETURN(usable, good(version.status()));
  if (!usable || hop->manifest != version->digest) return false;
  if (name.base) {
    const Result<VersionRecord> base = chain.version(*name.base);
    DW_ASSIGN_OR_RETURN(usable, good(base.status()));
    if (!usable || hop->base_manifest != base->digest) return false;
  }
  return are_there(chain.store(), hop->parts);
}

Status add_hop(const Chain& chain, const VersionRecord* base, const VersionRecord& version,
               std::vector<PartRef> parts, bool replace) {
  HopRecord hop;
  hop.run = chain.run();
  hop.version = version.manifest.version;
  hop.manifest = version.digest;
  if (base != nullptr) {
    hop.base = base->manifest.version;
    hop.base_manifest = base->digest;
  }
  hop.created = utc_now();
  hop.parts = std::move(parts);
  DW_RETURN_IF_ERROR(check_part_names(hop.parts, hop.base ? kPartPrefix : kFullPrefix));
  Store& store = chain.store();
  for (const PartRef& part : hop.parts) {
    DW_ASSIGN_OR_RETURN(const ObjectInfo info, store.stat(part.name));
    if (info.size_bytes != part.size_bytes) {
      return corruption(store.url() + "/" + part.name + ": expected " +
                        std::to_string(part.size_bytes) + " bytes, got " +
                        std::to_string(info.size_bytes));
    }
  }
  const std::string name = hop_name(name_of(base, version, hop.parts));
  DW_ASSIGN_OR_RETURN(const std::string text, serialise_hop(hop, keys_of(chain).sign));
  DW_ASSIGN_OR_RETURN(const Capabilities can, store.capabilities());
  DW_SYNC_POINT("hop: before");
  DW_RETURN_IF_ERROR(can.put_if_absent && !replace ? store.put_if_absent(name, MemoryBody(text))
                                                   : store.put(name, MemoryBody(text)));
  DW_SYNC_POINT("hop: after");
  return {};
}

namespace {

// Readers might try these first, and fsck would keep reporting them. Failures to remove them are
// ignored.
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
