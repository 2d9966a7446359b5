// Copies one record with all objects that it names.
#include "base/clock.h"
#include "base/log.h"
#include "base/sync_point.h"
#include "chain/head.h"
#include "chain/hop_records.h"
#include "chain/named_objects.h"
#include "mirror/impl.h"
#include "transfer/fetch.h"

namespace deltawire {
namespace {

constexpr double kLookForVersionsSeconds = 1;

}  // namespace

Result<std::vector<PartRef>> objects_of(const Chain& chain, const Manifest& manifest) {
  std::vector<PartRef> objects = manifest.parts;
  for (const SideFile& file : manifest.files) objects.push_back(side_object(file));
  if (manifest.schema.name != schema_name(manifest.schema.sha256.hex())) {
    return corruption(chain.store().url() + "/" + manifest_name(manifest.version) +
                      ": its schema is named " + manifest.schema.name);
  }
  objects.push_back(manifest.schema);
  return objects;
}

Result<ReadVersion> read_whole_version(const Chain& chain, uint64_t version) {
  const std::string name = manifest_name(version);
  DW_ASSIGN_OR_RETURN(std::string text, read_text(chain.store(), name, kMaxManifestBytes));
  DW_ASSIGN_OR_RETURN(VersionRecord record, read_version(chain, version, text));
  return ReadVersion{std::move(text), std::move(record)};
}

// ---- a version

// None: the source or another mirror has changed, and the plan is outdated.
Result<std::optional<Mirrored>> Mirror::Impl::copy_version(const StartingPoint& start) {
  const double began = steady_seconds();
  const bool goes_on = last && start.version == *last + 1;
  const Result<ReadVersion> read = read_whole_version(source, start.version);
  if (!read.ok() && read.status().code() == Code::kNotFound) return std::optional<Mirrored>();
  DW_RETURN_IF_ERROR(Status(read.status()));
  const Manifest& manifest = read->record.manifest;
  if (goes_on && manifest.parent != last_digest) {
    return corruption(source.store().url() + ": version " + std::to_string(start.version) +
                      " does not build upon the version " + std::to_string(*last) + " that " +
                      store->url() + " holds: mirror and source have different histories");
  }
  DW_ASSIGN_OR_RETURN(const std::vector<PartRef> objects, objects_of(source, manifest));
  make_beat();
  if (beat) beat->fetching(goes_on ? last : std::nullopt, start.version);
  Mirrored report;
  report.version = start.version;
  report.begins = !goes_on;
  Status status = start.anchor ? copy_anchor(*start.anchor, &report) : Status();
  if (status.ok()) {
    std::vector<PartRef> wanted = objects;
    if (goes_on && !options.verify) {
      std::erase_if(wanted,
                    [&](const PartRef& object) { return last_names.contains(object.name); });
    }
    const Result<Copied> copied = copier(options.verify).copy(wanted);
    status = copied.status();
    if (copied.ok()) {
      report.num_objects += objects.size();
      report.num_there += copied->num_there + objects.size() - wanted.size();
      report.bytes += copied->bytes;
    }
  }
  if (!status.ok()) {
    // If the record is gone too, the objects were pruned, and a new plan is needed.
    if (!is_damaged_or_gone(status)) return status;
    DW_ASSIGN_OR_RETURN(const bool there, has_version(source.store(), start.version));
    if (there) return status;
    return std::optional<Mirrored>();
  }
  DW_SYNC_POINT("mirror: objects copied");
  DW_ASSIGN_OR_RETURN(const bool ours, far->ends_with(last));
  if (!ours) {
    far.reset();
    return std::optional<Mirrored>();
  }
  if (last && !goes_on) {
    log_event(LogLevel::kWarning, "mirror.skipped",
              {{"mirror", store->url()}, {"first", *last + 1}, {"last", start.version - 1}});
  }
  DW_RETURN_IF_ERROR(far->commit(start.version, read->text));
  last = start.version;
  last_digest = read->record.digest;
  last_names.clear();
  for (const PartRef& object : objects) last_names.insert(object.name);
  head = std::max(head.value_or(0), start.version);
  hops.look_again();
  if (beat) beat->holds(held(), {});
  DW_ASSIGN_OR_RETURN(report.collected, collect());
  report.seconds = steady_seconds() - began;
  return std::optional(std::move(report));
}

// Copied before the version that it contains, so that the version can be reached once it is
// committed.
Status Mirror::Impl::copy_anchor(const HopName& anchor, Mirrored* report) {
  DW_ASSIGN_OR_RETURN(const std::string text,
                      read_text(source.store(), hop_name(anchor), kMaxHopBytes));
  DW_ASSIGN_OR_RETURN(const HopRecord record, read_hop(source, anchor, text));
  DW_ASSIGN_OR_RETURN(const Copied copied, copier(options.verify).copy(record.parts));
  DW_ASSIGN_OR_RETURN(const PutRecord put, far->put_record(hop_name(anchor), text));
  if (put == PutRecord::kOthers) {
    return conflict(store->url() + "/" + hop_name(anchor) + ": differs from the source's record");
  }
  hops.done(anchor);
  report->num_objects += record.parts.size();
  report->num_there += copied.num_there;
  report->bytes += copied.bytes;
  return {};
}

Result<std::optional<GcReport>> Mirror::Impl::collect() {
  if (!options.keep) return std::optional<GcReport>();
  DW_ASSIGN_OR_RETURN(GcReport report, far->chain().collect_garbage(*options.keep));
  return std::optional(std::move(report));
}

// ---- a merged delta or an anchor

// Whether the mirror has both ends. It may have removed them meanwhile.
Result<bool> Mirror::Impl::fits_mirror(const HopRecord& hop) {
  const auto is_held = [&](uint64_t version, const Digest& digest) -> Result<bool> {
    const Result<VersionRecord> held = far->chain().version(version);
    if (!held.ok() && !is_damage(held.status())) return held.status();
    return held.ok() && held->digest == digest;
  };
  DW_ASSIGN_OR_RETURN(const bool held, is_held(hop.version, hop.manifest));
  if (!held || !hop.base) return held;
  return hop.base_manifest ? is_held(*hop.base, *hop.base_manifest) : Result<bool>(false);
}

// None: the hop is not usable, which is not an error, or a new version has arrived.
Result<std::optional<Mirrored>> Mirror::Impl::copy_hop(const HopName& hop) {
  const double began = steady_seconds();
  const auto give_up = [&](const Status& why) -> Result<std::optional<Mirrored>> {
    if (!is_damage(why)) return why;
    hops.done(hop);
    if (why.code() != Code::kNotFound) {
      log_event(LogLevel::kWarning, "mirror.hop_left_out",
                {{"object", hop_name(hop)}, {"error", why}});
    }
    return std::optional<Mirrored>();
  };
  const Result<std::string> text = read_text(source.store(), hop_name(hop), kMaxHopBytes);
  if (!text.ok()) return give_up(text.status());
  const Result<HopRecord> record = read_hop(source, hop, *text);
  if (!record.ok()) return give_up(record.status());
  DW_ASSIGN_OR_RETURN(bool fits, fits_mirror(*record));
  if (!fits) return give_up(not_found("the mirror does not hold both ends"));
  if (beat) beat->fetching(hop.base, hop.version);
  // A hop may be as large as the model. New versions must not wait for it.
  double looked = steady_seconds();
  const auto version_came = [&] {
    if (steady_seconds() - looked < kLookForVersionsSeconds) return false;
    looked = steady_seconds();
    const Result<bool> newer = has_version(source.store(), *last + 1);
    return newer.ok() && *newer;
  };
  const Result<Copied> copied = copier(options.verify).copy(record->parts, version_came);
  if (!copied.ok()) return give_up(copied.status());
  if (copied->interrupted) return std::optional<Mirrored>();
  DW_SYNC_POINT("mirror: hop's objects copied");
  DW_ASSIGN_OR_RETURN(fits, fits_mirror(*record));
  if (!fits) return give_up(not_found("gc has removed an end of it"));
  DW_RETURN_IF_ERROR(far->put_record(hop_name(hop), *text).status());
  DW_SYNC_POINT("mirror: hop added");
  hops.done(hop);
  if (beat) beat->holds(held(), {});
  return std::optional(Mirrored{hop.base ? HopKind::kMerged : HopKind::kAnchor,
                                hop.version,
                                hop.base,
                                record->parts.size(),
                                copied->num_there,
                                copied->bytes,
                                false,
                                {},
                                steady_seconds() - began});
}

// ---- repair

Result<std::vector<PartRef>> Mirror::Impl::objects_of_hop(const HopName& hop, MirrorRepair* found) {
  const Result<HopRecord> record = read_hop(far->chain(), hop);
  if (record.ok()) return record->parts;
  if (record.status().code() == Code::kNotFound) return std::vector<PartRef>();  // removed by gc
  if (record.status().code() != Code::kCorruption) return record.status();
  DW_ASSIGN_OR_RETURN(const HopRecord mended, mend_hop(hop, record.status()));
  ++found->num_repaired;
  return mended.parts;
}

Result<MirrorRepair> Mirror::Impl::repair() {
  far.reset();
  DW_RETURN_IF_ERROR(open_far());
  MirrorRepair found;
  DW_ASSIGN_OR_RETURN(found.num_repaired, mend_versions());
  far.reset();
  DW_RETURN_IF_ERROR(begin());
  const Chain& chain = far->chain();
  std::set<std::string> seen;  // versions share objects
  const auto look = [&](std::vector<PartRef> objects) -> Status {
    std::erase_if(objects, [&](const PartRef& object) { return !seen.insert(object.name).second; });
    DW_ASSIGN_OR_RETURN(const Copied copied, copier(true).copy(objects));
    found.num_objects += objects.size();
    found.num_repaired += copied.num_copied;
    found.repaired_bytes += copied.bytes;
    return {};
  };
  DW_ASSIGN_OR_RETURN(const std::vector<uint64_t> versions, chain.versions());
  for (const uint64_t version : versions) {
    const Result<VersionRecord> record = chain.version(version);
    if (!record.ok() && record.status().code() == Code::kNotFound) continue;
    DW_RETURN_IF_ERROR(Status(record.status()));
    DW_ASSIGN_OR_RETURN(const auto objects, objects_of(chain, record->manifest));
    DW_RETURN_IF_ERROR(look(objects));
    ++found.num_versions;
  }
  DW_ASSIGN_OR_RETURN(const auto added, list_hops(chain, 0, kMaxVersion, SIZE_MAX));
  for (const HopName& hop : added) {
    DW_ASSIGN_OR_RETURN(const std::vector<PartRef> objects, objects_of_hop(hop, &found));
    DW_RETURN_IF_ERROR(look(objects));
    ++found.num_hops;
  }
  return found;
}

// Restores records that were lost or damaged in the mirror from the source.

namespace {

// Whether the source's record fits the records that the mirror holds.
bool fits(const ReadVersion& theirs, const std::optional<Digest>& wanted) {
  return !wanted || theirs.record.digest == *wanted;
}

}  // namespace

// Works from the newest version down, because each record names its predecessor. Versions removed
// by the mirror's retention stay removed: only a delta without another path needs its predecessor.
Result<uint64_t> Mirror::Impl::mend_versions() {
  const Chain& chain = far->chain();
  DW_ASSIGN_OR_RETURN(const std::vector<uint64_t> listed, listed_from(*store, 0));
  DW_ASSIGN_OR_RETURN(const auto added, list_hops(chain, 0, kMaxVersion, SIZE_MAX));
  std::set<uint64_t> there(listed.begin(), listed.end()), led_to;
  for (const HopName& hop : added) led_to.insert(hop.version);
  uint64_t mended = 0;
  std::optional<Digest> wanted;  // as named by the next version
  bool whole_above = false;      // a later version does not depend on this one
  for (auto at = there.rbegin(); at != there.rend(); ++at) {
    const uint64_t version = *at;
    Result<ReadVersion> read = read_whole_version(chain, version);
    if (read.status().code() == Code::kCorruption) {
      Result<ReadVersion> theirs = read_whole_version(source, version);
      // If the source cannot help, report the mirror's own damage.
      if (!theirs.ok() || !fits(*theirs, wanted)) return read.status();
      DW_RETURN_IF_ERROR(put_mended(*theirs));
      ++mended;
      read = std::move(theirs);
    }
    if (read.status().code() == Code::kNotFound) {  // removed by gc
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
    if (pruned) continue;  // pruned in the source, and soon here too
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

// Restores a merged delta or an anchor. If the source cannot help, reports the mirror's own damage.
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

// Copies the named objects before the record, as always.
Status Mirror::Impl::put_mended(const ReadVersion& read) {
  const uint64_t version = read.record.manifest.version;
  DW_ASSIGN_OR_RETURN(const std::vector<PartRef> objects, objects_of(source, read.record.manifest));
  DW_RETURN_IF_ERROR(copier(true).copy(objects).status());
  log_event(LogLevel::kWarning, "mirror.mended",
            {{"mirror", store->url()}, {"object", manifest_name(version)}});
  return store->put(manifest_name(version), MemoryBody(read.text));
}

}  // namespace deltawire
