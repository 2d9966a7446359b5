#include "chain/edges.h"

#include "base/sync_point.h"
#include "chain/keys.h"
#include "chain/names.h"

namespace deltawire {
namespace {

EdgeName name_of(const Edge& edge, uint64_t base_chain_bytes, uint64_t chain_bytes) {
  return {edge.version, edge.base, edge.part_bytes(), base_chain_bytes, chain_bytes};
}

Status check_edge(const Chain& chain, const EdgeName& name, const Edge& edge) {
  if (edge.run != chain.run()) {
    return corruption("belongs to run " + edge.run + ", expected " + chain.run());
  }
  if (edge.version != name.version || edge.base != name.base || edge.part_bytes() != name.bytes) {
    return corruption("its record says otherwise: " +
                      edge_name(name_of(edge, name.base_chain_bytes, name.chain_bytes)));
  }
  return check_part_names(edge.parts, edge.base ? kPartPrefix : kFullPrefix);
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

Result<std::vector<EdgeName>> list_edges(const Chain& chain, uint64_t first, uint64_t last,
                                         size_t max_pages) {
  std::vector<EdgeName> found;
  // '-' follows the number in a name, so this sorts before every edge to `first`.
  std::string after = std::string(kEdgePrefix) + number_name(first);
  for (size_t page_number = 0; page_number < max_pages; ++page_number) {
    DW_ASSIGN_OR_RETURN(const auto page, chain.store().list(kEdgePrefix, after, kListPage));
    for (const ObjectInfo& object : page) {
      const std::optional<EdgeName> name = parse_edge_name(object.name);
      if (!name) continue;
      if (name->version > last) return found;
      found.push_back(*name);
    }
    if (page.size() < kListPage) break;
    after = page.back().name;
  }
  return found;
}

Result<Edge> read_edge(const Chain& chain, const EdgeName& name) {
  const std::string object = edge_name(name);
  DW_ASSIGN_OR_RETURN(const std::string text, chain.store().get(object, kMaxEdgeBytes));
  const std::string place = chain.store().url() + "/" + object;
  Result<Edge> edge = parse_edge(text, keys_of(chain).trust);
  if (!edge.ok()) return std::move(edge).status().at(place);
  DW_RETURN_IF_ERROR(check_edge(chain, name, *edge).at(place));
  return edge;
}

Result<bool> are_there(Store& store, const std::vector<PartRef>& parts) {
  for (const PartRef& part : parts) {
    const Result<ObjectInfo> info = store.stat(part.name);
    if (!info.ok() && info.status().code() != Code::kNotFound) return info.status();
    if (!info.ok() || info->size_bytes != part.size_bytes) return false;
  }
  return true;
}

Result<bool> is_usable(const Chain& chain, const EdgeName& name) {
  const Result<Edge> edge = read_edge(chain, name);
  const auto good = [](const Status& status) -> Result<bool> {
    if (status.ok()) return true;
    if (is_damage(status)) return false;
    return status;
  };
  DW_ASSIGN_OR_RETURN(bool usable, good(edge.status()));
  if (!usable || !is_signed_for(chain, edge->signed_by)) return false;
  const Result<VersionRecord> version = chain.version(name.version);
  DW_ASSIGN_OR_RETURN(usable, good(version.status()));
  if (!usable || edge->manifest != version->digest) return false;
  if (name.base) {
    const Result<VersionRecord> base = chain.version(*name.base);
    DW_ASSIGN_OR_RETURN(usable, good(base.status()));
    if (!usable || edge->base_manifest != base->digest) return false;
  }
  return are_there(chain.store(), edge->parts);
}

Status add_edge(const Chain& chain, const VersionRecord* base, const VersionRecord& version,
                std::vector<PartRef> parts, bool replace) {
  Edge edge;
  edge.run = chain.run();
  edge.version = version.manifest.version;
  edge.manifest = version.digest;
  if (base != nullptr) {
    edge.base = base->manifest.version;
    edge.base_manifest = base->digest;
  }
  edge.created = utc_now();
  edge.parts = std::move(parts);
  DW_RETURN_IF_ERROR(check_part_names(edge.parts, edge.base ? kPartPrefix : kFullPrefix));
  Store& store = chain.store();
  for (const PartRef& part : edge.parts) {
    DW_ASSIGN_OR_RETURN(const ObjectInfo info, store.stat(part.name));
    if (info.size_bytes != part.size_bytes) {
      return corruption(store.url() + "/" + part.name + ": expected " +
                        std::to_string(part.size_bytes) + " bytes, got " +
                        std::to_string(info.size_bytes));
    }
  }
  const uint64_t base_chain_bytes = base == nullptr ? 0 : base->manifest.chain_bytes;
  const std::string name = edge_name(name_of(edge, base_chain_bytes, version.manifest.chain_bytes));
  DW_ASSIGN_OR_RETURN(const std::string text, serialise_edge(edge, keys_of(chain).sign));
  DW_ASSIGN_OR_RETURN(const Capabilities can, store.capabilities());
  DW_SYNC_POINT("edge: before");
  DW_RETURN_IF_ERROR(can.put_if_absent && !replace ? store.put_if_absent(name, MemoryBody(text))
                                                   : store.put(name, MemoryBody(text)));
  DW_SYNC_POINT("edge: after");
  return {};
}

}  // namespace deltawire
