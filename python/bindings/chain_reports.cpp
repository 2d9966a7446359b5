#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <tuple>

#include "reports.h"

namespace deltawire::python {
namespace {

using Object = std::tuple<std::string, uint64_t, std::string>;  // name, bytes, sha-256

std::vector<Object> parts_of(const std::vector<PartRef>& parts) {
  std::vector<Object> objects;
  for (const PartRef& part : parts) {
    objects.emplace_back(part.name, part.size_bytes, part.sha256.hex());
  }
  return objects;
}

}  // namespace

Report to_python(const VersionRecord& record) {
  const Manifest& manifest = record.manifest;
  std::vector<Object> files;
  for (const SideFile& file : manifest.files) {
    files.emplace_back(file.name, file.size_bytes, file.sha256.hex());
  }
  Report out;
  out["run"] = manifest.run;
  out["version"] = manifest.version;
  out["base"] = manifest.base;
  out["full"] = manifest.kind == VersionKind::kFull;
  out["reason"] = manifest.reason;
  out["created"] = manifest.created;
  out["publisher"] = manifest.publisher;
  out["parts"] = parts_of(manifest.parts);
  out["files"] = files;
  out["bytes"] = manifest.part_bytes();
  out["num_tensors"] = manifest.digests.size();
  out["num_elements"] = manifest.elements;
  out["num_changed"] = manifest.changed;
  out["seconds"] = double(manifest.milliseconds) / 1000;
  out["codec"] = manifest.codec;
  out["quantization"] = manifest.quantization;
  out["state"] = manifest.state.hex();
  out["manifest"] = record.digest.hex();
  out["parent"] = manifest.parent ? manifest.parent->hex() : "";
  out["anchor"] = manifest.anchor;
  out["anchor_bytes"] = manifest.anchor_bytes;
  out["chain_bytes"] = manifest.chain_bytes;
  out["signed_by"] = manifest.signed_by;
  return out;
}

Report to_python(const Plan& plan) {
  nb::list hops;
  for (const Hop& hop : plan.hops) {
    Report item;
    item["kind"] = hop_kind_name(hop.kind);
    item["from_version"] = hop.base;
    item["version"] = hop.version;
    item["bytes"] = hop.bytes;
    item["parts"] = parts_of(hop.parts);
    hops.append(item);
  }
  Report out;
  out["version"] = plan.target.manifest.version;
  out["hops"] = hops;
  out["bytes"] = plan.bytes;
  out["all_deltas_bytes"] = plan.all_deltas_bytes;
  out["anchor_bytes"] = plan.anchor_bytes;
  out["notes"] = plan.notes;
  return out;
}

Report to_python(const ListedHeartbeat& listed) {
  const bool readable = listed.heartbeat.ok();
  const Heartbeat beat = readable ? *listed.heartbeat : Heartbeat{};
  Report out;
  out["name"] = readable ? beat.name : listed.object.name;
  out["host"] = beat.host;
  out["pid"] = beat.pid;
  out["held"] = to_tuple(beat.held);
  out["serving"] = to_tuple(beat.serving);
  out["fetching"] = beat.lease ? std::optional(beat.lease->to) : std::nullopt;
  out["seen"] = readable ? beat.seen : listed.object.modified;
  out["age_seconds"] = listed.age_seconds;
  out["interval_seconds"] = beat.interval_seconds;
  out["gone"] = listed.is_gone();
  out["error"] = readable ? beat.error : listed.heartbeat.status().to_string();
  return out;
}

namespace {

Report reason_of(const KeptBecause& because) {
  Report out;
  out["why"] = because.why;
  out["replica"] = because.replica;
  out["until"] = because.until;
  return out;
}

}  // namespace

Report to_python(const GcReport& report) {
  std::vector<std::tuple<uint64_t, uint64_t>> kept;
  for (const VersionRange& range : report.kept) kept.emplace_back(range.first, range.last);
  nb::list reasons, waiting;
  for (const KeptVersions& one : report.reasons) {
    Report item = reason_of(one.because);
    item["first"] = one.versions.first;
    item["last"] = one.versions.last;
    item["anchor"] = one.first;
    reasons.append(item);
  }
  for (const KeptObjects& one : report.waiting) {
    Report item = reason_of(one.because);
    item["num_objects"] = one.num_objects;
    item["bytes"] = one.bytes;
    waiting.append(item);
  }
  Report out;
  out["head"] = report.head;
  out["kept"] = kept;
  out["reasons"] = reasons;
  out["num_versions"] = report.num_versions;
  out["num_hops"] = report.num_hops;
  out["num_orphans"] = report.num_orphans;
  out["num_noted"] = report.num_noted;
  out["noted_bytes"] = report.noted_bytes;
  out["num_deleted"] = report.num_deleted;
  out["deleted_bytes"] = report.deleted_bytes;
  out["num_waiting"] = report.num_waiting;
  out["waiting"] = waiting;
  out["num_forgotten"] = report.num_forgotten;
  out["num_temporaries"] = report.num_temporaries;
  out["notes"] = report.notes;
  return out;
}

Report to_python(const CompactReport& report) {
  nb::list merged;
  for (const MergedDelta& one : report.merged) {
    Report item;
    item["base"] = one.base;
    item["version"] = one.version;
    item["bytes"] = one.bytes;
    item["separate_bytes"] = one.separate_bytes;
    item["made"] = one.made;
    item["skipped"] = one.skipped;
    merged.append(item);
  }
  Report out;
  out["merged"] = merged;
  out["num_there"] = report.num_there;
  out["seconds"] = report.seconds;
  return out;
}

Report to_python(const AnchorReport& report) {
  Report out;
  out["version"] = report.version;
  out["made"] = report.made;
  out["bytes"] = report.bytes;
  out["num_files"] = report.num_files;
  out["seconds"] = report.seconds;
  return out;
}

Report to_python(const FsckReport& report) {
  Report out;
  out["head"] = report.head;
  out["num_versions"] = report.num_versions;
  out["num_hops"] = report.num_hops;
  out["num_parts"] = report.num_parts;
  out["num_files"] = report.num_files;
  out["bytes"] = report.bytes;
  out["num_decoded"] = report.num_decoded;
  out["num_orphans"] = report.num_orphans;
  out["orphan_bytes"] = report.orphan_bytes;
  out["num_waiting"] = report.num_waiting;
  out["waiting_bytes"] = report.waiting_bytes;
  out["problems"] = report.problems;
  out["warnings"] = report.warnings;
  return out;
}

}  // namespace deltawire::python
