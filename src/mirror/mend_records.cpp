// Records of versions that were lost or damaged in the mirror, taken from the source again.
#include "base/log.h"
#include "chain/head.h"
#include "chain/hop_records.h"
#include "mirror/impl.h"

namespace deltawire {
namespace {

// Whether the source's record belongs between those that the mirror holds.
bool fits(const ReadVersion& theirs, const std::optional<Digest>& wanted) {
  return !wanted || theirs.record.digest == *wanted;
}

}  // namespace

// From the newest down: each names the one before it. What the mirror's retention removed stays
// away: only a delta that nothing else leads to needs the version before it.
Result<uint64_t> Mirror::Impl::mend_versions() {
  const Chain& chain = far->chain();
  DW_ASSIGN_OR_RETURN(const std::vector<uint64_t> listed, listed_from(*store, 0));
  DW_ASSIGN_OR_RETURN(const auto added, list_hops(chain, 0, kMaxVersion, SIZE_MAX));
  std::set<uint64_t> there(listed.begin(), listed.end()), led_to;
  for (const HopName& hop : added) led_to.insert(hop.version);
  uint64_t mended = 0;
  std::optional<Digest> wanted;  // as the version after this one says
  bool whole_above = false;      // a later version needs nothing from here
  for (auto at = there.rbegin(); at != there.rend(); ++at) {
    const uint64_t version = *at;
    Result<ReadVersion> read = read_whole_version(chain, version);
    if (read.status().code() == Code::kCorruption) {
      Result<ReadVersion> theirs = read_whole_version(source, version);
      // Where the source cannot help either, the mirror's own damage is what is named.
      if (!theirs.ok() || !fits(*theirs, wanted)) return read.status();
      DW_RETURN_IF_ERROR(put_mended(*theirs));
      ++mended;
      read = std::move(theirs);
    }
    if (read.status().code() == Code::kNotFound) {  // gc was here
      wanted.reset();
      continue;
    }
    DW_RETURN_IF_ERROR(Status(read.status()));
    const Manifest& manifest = read->record.manifest;
    const bool needs_base = manifest.kind == VersionKind::kDelta && !led_to.contains(version);
    const bool has_base = version != 0 && there.contains(version - 1);
    wanted = has_base || needs_base ? manifest.parent : std::nullopt;
    whole_above |= !needs_base;
    if (has_base || !needs_base || version == 0) continue;
    const Result<ReadVersion> base = read_whole_version(source, version - 1);
    const bool pruned = base.status().code() == Code::kNotFound && whole_above;
    if (pruned) continue;  // in the source, and soon here as well
    DW_RETURN_IF_ERROR(Status(base.status()));
    if (!fits(*base, wanted)) {
      return corruption(source.store().url() + ": version " + std::to_string(version - 1) +
                        " is not the one that " + store->url() + " lacks");
    }
    DW_RETURN_IF_ERROR(put_mended(*base));
    ++mended;
    there.insert(version - 1);
  }
  return mended;
}

// A merged delta or an anchor. Where the source cannot help, the mirror's own damage is named.
Result<HopRecord> Mirror::Impl::mend_hop(const HopName& hop, const Status& damage) {
  const Result<std::string> text = source.store().get(hop_name(hop), kMaxHopBytes);
  if (!text.ok()) return is_damage(text.status()) ? damage : text.status();
  const Result<HopRecord> record = read_hop(source, hop, *text);
  if (!record.ok()) return damage;
  DW_ASSIGN_OR_RETURN(const bool fits, fits_mirror(*record));
  if (!fits) return damage;
  DW_RETURN_IF_ERROR(copier(true).copy(record->parts).status());
  log_event(LogLevel::kWarning, "mirror.mended",
            {{"mirror", store->url()}, {"object", hop_name(hop)}});
  DW_RETURN_IF_ERROR(store->put(hop_name(hop), MemoryBody(*text)));
  return record;
}

// What it names first, as always.
Status Mirror::Impl::put_mended(const ReadVersion& read) {
  const uint64_t version = read.record.manifest.version;
  DW_ASSIGN_OR_RETURN(const std::vector<PartRef> objects, objects_of(source, read.record.manifest));
  DW_RETURN_IF_ERROR(copier(true).copy(objects).status());
  log_event(LogLevel::kWarning, "mirror.mended",
            {{"mirror", store->url()}, {"object", manifest_name(version)}});
  return store->put(manifest_name(version), MemoryBody(read.text));
}

}  // namespace deltawire
