#include "reports.h"

#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <tuple>

namespace deltawire::python {
namespace {

std::vector<std::tuple<std::string, double, double>> phases_of(const std::vector<Phase>& phases) {
  std::vector<std::tuple<std::string, double, double>> out;
  for (const Phase& phase : phases) out.emplace_back(phase.name, phase.begin, phase.end);
  return out;
}

Report to_python(const FirstDifference& first) {
  Report out;
  out["file"] = first.file;
  out["coordinate"] = first.coordinate;
  out["old_bits"] = first.old_bits;
  out["new_bits"] = first.new_bits;
  return out;
}

}  // namespace

Report to_python(const PublishReport& report) {
  Report out;
  out["run"] = report.run;
  out["number"] = report.version;
  out["manifest"] = report.manifest;
  out["committed"] = report.committed;
  out["full"] = report.full;
  out["reason"] = report.reason;
  out["codec"] = report.codec;
  out["anchored"] = report.anchored;
  out["num_tensors"] = report.num_tensors;
  out["num_changed_tensors"] = report.num_changed_tensors;
  out["num_added"] = report.num_added;
  out["num_removed"] = report.num_removed;
  out["num_reshaped"] = report.num_reshaped;
  out["num_elements"] = report.num_elements;
  out["num_changed"] = report.num_changed;
  out["weights_bytes"] = report.weights_bytes;
  out["bytes"] = report.bytes;
  out["num_parts"] = report.num_parts;
  out["seconds"] = report.seconds;
  out["phases"] = phases_of(report.phases);
  out["dense_float32"] = report.dense_float32;
  out["warnings"] = report.warnings;
  out["note"] = report.note;
  return out;
}

Report to_python(const PullReport& report) {
  Report out;
  out["run"] = report.run;
  out["version"] = report.version;
  out["manifest"] = report.manifest;
  out["from_version"] = report.from;
  out["changed"] = report.changed;
  out["repaired"] = report.repaired;
  out["recovered"] = report.recovered;
  out["repair_reason"] = report.repair_reason;
  out["bytes"] = report.bytes;
  out["num_hops"] = report.num_hops;
  out["num_tensors"] = report.num_tensors;
  out["num_changed"] = report.num_changed;
  out["weights_bytes"] = report.weights_bytes;
  out["staged_device_bytes"] = report.staged_device_bytes;
  out["seconds"] = report.seconds;
  out["patch_seconds"] = report.patch_seconds;
  out["phases"] = phases_of(report.phases);
  out["path"] = report.path;
  out["whole"] = report.whole;
  out["num_side_files"] = report.num_side_files;
  out["num_ahead"] = report.num_ahead;
  out["set_aside"] = report.set_aside;
  return out;
}

Report to_python(const ReplicaState& state) {
  Report out;
  out["run"] = state.run;
  out["version"] = state.version;
  out["manifest"] = state.manifest;
  out["state"] = state.state;
  out["patching_to"] = state.patching_to;
  out["updated"] = state.updated;
  out["serving"] = to_tuple(state.serving);
  return out;
}

Report to_python(const DiffReport& report) {
  Report out;
  out["num_tensors"] = report.num_tensors;
  out["num_changed_tensors"] = report.num_changed_tensors;
  out["num_added"] = report.num_added;
  out["num_removed"] = report.num_removed;
  out["num_elements"] = report.num_elements;
  out["num_changed"] = report.num_changed;
  out["weights_bytes"] = report.weights_bytes;
  out["bytes"] = report.delta_bytes;
  out["num_parts"] = report.num_parts;
  out["base"] = report.base.hex();
  out["target"] = report.target.hex();
  out["metadata_changed"] = report.metadata_changed;
  return out;
}

Report to_python(const ApplyReport& report) {
  Report out;
  out["num_tensors"] = report.num_tensors;
  out["num_patched"] = report.num_patched;
  out["num_added"] = report.num_added;
  out["num_removed"] = report.num_removed;
  out["num_changed"] = report.num_changed;
  out["weights_bytes"] = report.weights_bytes;
  out["target"] = report.target.hex();
  out["target_known"] = report.target_known;
  return out;
}

Report to_python(const VerifyReport& report) {
  nb::list differences;
  for (const TensorDifference& difference : report.differences) {
    Report item;
    item["tensor"] = difference.tensor;
    item["what"] = difference.what;
    item["num_different"] = difference.num_different;
    item["num_elements"] = difference.num_elements;
    item["first"] = difference.first ? nb::object(to_python(*difference.first)) : nb::none();
    differences.append(item);
  }
  Report out;
  out["num_tensors"] = report.num_tensors;
  out["num_elements"] = report.num_elements;
  out["num_different"] = report.num_different;
  out["weights_bytes"] = report.weights_bytes;
  out["differences"] = differences;
  return out;
}

}  // namespace deltawire::python
