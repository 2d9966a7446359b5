// What Chain offers beside its records: each method is one function of this layer.
#include <algorithm>
#include <map>

#include "chain/chain.h"
#include "chain/gc.h"
#include "chain/heartbeat.h"
#include "chain/hop_records.h"
#include "chain/part_reader.h"
#include "chain/plan.h"
#include "chain/retention.h"
#include "format/delta_part.h"

namespace deltawire {

Result<std::vector<uint64_t>> Chain::versions() const {
  DW_ASSIGN_OR_RETURN(const ChainNames names, list_names(*this));
  return std::vector<uint64_t>(names.versions.begin(), names.versions.end());
}

Result<std::vector<TensorChanges>> Chain::changes(uint64_t number) const {
  DW_ASSIGN_OR_RETURN(const VersionRecord record, version(number));
  std::vector<TensorChanges> changes;
  if (record.manifest.kind == VersionKind::kFull) return changes;
  std::map<std::string, TensorChanges> by_tensor;  // one in boxes has several entries
  for (const PartRef& ref : record.manifest.parts) {
    DW_ASSIGN_OR_RETURN(const std::vector<uint8_t> bytes, read_part(store(), ref, {}));
    DW_ASSIGN_OR_RETURN(const DeltaPart part, parse_part(bytes));
    for (const PayloadView& view : part.entries) {
      TensorChanges& own = by_tensor[view.entry.tensor];
      own.tensor = view.entry.tensor;
      own.num_changed += view.entry.num_changed;
      own.num_elements += view.entry.num_elements();
    }
  }
  for (auto& [name, own] : by_tensor) changes.push_back(std::move(own));
  return changes;
}

std::string_view hop_kind_name(HopKind kind) noexcept {
  switch (kind) {
    case HopKind::kAnchor:
      return "anchor";
    case HopKind::kMerged:
      return "merged";
    case HopKind::kVersion:
      break;
  }
  return "delta";
}

Result<std::vector<AddedHop>> Chain::added_hops(uint64_t first, uint64_t last) const {
  DW_ASSIGN_OR_RETURN(const auto names, list_hops(*this, first, last, SIZE_MAX));
  std::vector<AddedHop> hops;
  for (const HopName& name : names) hops.push_back({name.version, name.base, name.bytes});
  return hops;
}

Result<Plan> Chain::plan(std::optional<uint64_t> from, std::optional<uint64_t> to) const {
  if (!to) {
    DW_ASSIGN_OR_RETURN(to, head());
  }
  if (!to) return not_found(store().url() + ": nothing was published yet");
  std::optional<Held> held;
  if (from) {
    DW_ASSIGN_OR_RETURN(const VersionRecord record, version(*from));
    held = Held{*from, record.digest};
  }
  return plan_catch_up(*this, held, *to);
}

Status Chain::pin(uint64_t number) const { return pin_version(*this, number); }
Status Chain::unpin(uint64_t number) const { return unpin_version(*this, number); }
Result<std::vector<uint64_t>> Chain::pins() const { return list_pins(store()); }

Result<std::vector<ListedHeartbeat>> Chain::replicas() const {
  DW_ASSIGN_OR_RETURN(std::vector<ListedHeartbeat> found, list_heartbeats(store()));
  if (found.empty()) return found;
  const Result<int64_t> asked = store().clock();
  const int64_t now = asked.ok() ? *asked : unix_now();
  for (ListedHeartbeat& listed : found) {
    const int64_t written = listed.object.modified != 0 || !listed.heartbeat.ok()
                                ? listed.object.modified
                                : listed.heartbeat->seen;
    listed.age_seconds = std::max<int64_t>(0, now - written);
  }
  return found;
}

Result<uint64_t> Chain::forget(const std::string& name, bool force) const {
  DW_ASSIGN_OR_RETURN(const std::vector<ListedHeartbeat> all, replicas());
  uint64_t removed = 0;
  const ListedHeartbeat* live = nullptr;
  for (const ListedHeartbeat& listed : all) {
    const bool named = listed.heartbeat.ok() && listed.heartbeat->name == name;
    if (!named && listed.object.name != name) continue;
    if (!force && !listed.is_gone()) {
      live = &listed;
      continue;
    }
    DW_RETURN_IF_ERROR(store().remove(listed.object.name));
    ++removed;
  }
  if (removed != 0) return removed;
  const std::string place = store().url() + ": replica " + name;
  if (live == nullptr) return not_found(place + ": there is no such replica");
  return conflict(place + ": is not gone; it was heard of " + std::to_string(live->age_seconds) +
                  " s ago");
}

Result<GcReport> Chain::collect_garbage(const GcOptions& options) const {
  return deltawire::collect_garbage(*this, options);
}

}  // namespace deltawire
