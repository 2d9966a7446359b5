#include "reports.h"

#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <nanobind/stl/string_view.h>
#include <tuple>

namespace deltawire::python {
namespace {

std::vector<std::tuple<std::string, double, double>> phases_of(const std::vector<Phase>& phases) {
  std::vector<std::tuple<std::string, double, double>> out;
  for (const Phase& phase : phases) out.emplace_back(phase.name, phase.begin, phase.end);
  return out;
}

}  // namespace

Report to_python(const PublishReport& report) {
  Report out;
  DW_FIELDS(out, report, run, manifest, committed, full, reason, codec, anchored, num_tensors,
            num_changed_tensors, num_added, num_removed, num_reshaped, num_elements, num_changed,
            weights_bytes, bytes, num_parts, seconds, dense_float32, warnings, note);
  out["number"] = report.version;
  out["phases"] = phases_of(report.phases);
  return out;
}

Report to_python(const PullReport& report) {
  Report out;
  DW_FIELDS(out, report, run, version, manifest, changed, repaired, recovered, repair_reason, bytes,
            num_hops, num_tensors, num_changed, weights_bytes, staged_device_bytes, seconds,
            patch_seconds, whole, num_side_files, num_ahead, set_aside);
  out["from_version"] = report.from;
  out["phases"] = phases_of(report.phases);
  out["path"] = report.path.empty() ? std::nullopt : std::optional(report.path);
  return out;
}

Report to_python(const ReplicaState& state) {
  Report out;
  DW_FIELDS(out, state, run, version, manifest, state, patching_to, updated);
  out["serving"] = to_tuple(state.serving);
  return out;
}

Report to_python(const DiffReport& report) {
  Report out;
  DW_FIELDS(out, report, num_tensors, num_changed_tensors, num_added, num_removed, num_elements,
            num_changed, weights_bytes, num_parts, metadata_changed);
  out["bytes"] = report.delta_bytes;
  out["base"] = report.base.hex();
  out["target"] = report.target.hex();
  return out;
}

Report to_python(const ApplyReport& report) {
  Report out;
  DW_FIELDS(out, report, num_tensors, num_patched, num_added, num_removed, num_changed,
            weights_bytes, target_known);
  out["target"] = report.target.hex();
  return out;
}

Report to_python(const VerifyReport& report) {
  nb::list differences;
  for (const TensorDifference& difference : report.differences) {
    Report item;
    DW_FIELDS(item, difference, tensor, what, num_different, num_elements);
    const FirstDifference first = difference.first.value_or(FirstDifference{});
    DW_FIELDS(item, first, old_bits, new_bits);
    item["coordinate"] = difference.first ? std::optional(first.coordinate) : std::nullopt;
    differences.append(item);
  }
  Report out;
  DW_FIELDS(out, report, num_tensors, num_elements, num_different, weights_bytes);
  out["differences"] = differences;
  return out;
}

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
  DW_FIELDS(out, manifest, run, version, base, reason, created, publisher, codec, quantization,
            anchor, anchor_bytes, chain_bytes, signed_by);
  out["full"] = manifest.kind == VersionKind::kFull;
  out["parts"] = parts_of(manifest.parts);
  out["files"] = files;
  out["bytes"] = manifest.part_bytes();
  out["num_tensors"] = manifest.digests.size();
  out["num_elements"] = manifest.elements;
  out["num_changed"] = manifest.changed;
  out["seconds"] = double(manifest.milliseconds) / 1000;
  out["state"] = manifest.state.hex();
  out["manifest"] = record.digest.hex();
  out["parent"] = manifest.parent ? manifest.parent->hex() : "";
  return out;
}

Report to_python(const Plan& plan) {
  nb::list hops;
  for (const Hop& hop : plan.hops) {
    Report item;
    DW_FIELDS(item, hop, version, bytes);
    item["kind"] = hop_kind_name(hop.kind);
    item["from_version"] = hop.base;
    item["parts"] = parts_of(hop.parts);
    hops.append(item);
  }
  Report out;
  DW_FIELDS(out, plan, bytes, all_deltas_bytes, anchor_bytes, notes);
  out["version"] = plan.target.manifest.version;
  out["hops"] = hops;
  return out;
}

Report to_python(const ListedHeartbeat& listed) {
  const bool readable = listed.heartbeat.ok();
  const Heartbeat beat = readable ? *listed.heartbeat : Heartbeat{};
  Report out;
  DW_FIELDS(out, beat, host, pid, interval_seconds);
  out["name"] = readable ? beat.name : listed.object.name;
  out["held"] = to_tuple(beat.held);
  out["serving"] = to_tuple(beat.serving);
  out["fetching"] = beat.lease ? std::optional(beat.lease->to) : std::nullopt;
  out["seen"] = readable ? beat.seen : listed.object.modified;
  out["gone"] = listed.is_gone();
  out["error"] = readable ? beat.error : listed.heartbeat.status().to_string();
  out["age_seconds"] = listed.age_seconds;
  return out;
}

namespace {

Report reason_of(const KeptBecause& because) {
  Report out;
  DW_FIELDS(out, because, why, replica, until);
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
  DW_FIELDS(out, report, head, num_versions, num_hops, num_orphans, num_noted, noted_bytes,
            num_deleted, deleted_bytes, num_waiting, num_forgotten, num_temporaries, notes);
  out["kept"] = kept;
  out["reasons"] = reasons;
  out["waiting"] = waiting;
  return out;
}

Report to_python(const CompactReport& report) {
  nb::list merged;
  for (const MergedDelta& one : report.merged) {
    Report item;
    DW_FIELDS(item, one, base, version, bytes, separate_bytes, skipped);
    item["written"] = one.written;
    merged.append(item);
  }
  Report out;
  DW_FIELDS(out, report, num_there, seconds);
  out["merged"] = merged;
  return out;
}

Report to_python(const AnchorReport& report) {
  Report out;
  DW_FIELDS(out, report, version, bytes, num_files, seconds);
  out["written"] = report.written;
  return out;
}

Report to_python(const FsckReport& report) {
  Report out;
  DW_FIELDS(out, report, head, num_versions, num_hops, num_parts, num_files, bytes, num_decoded,
            num_orphans, orphan_bytes, num_waiting, waiting_bytes, problems, warnings);
  return out;
}

}  // namespace deltawire::python
