// A chain in a second store.
#include "deltawire/mirror.h"

#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>

#include "bind.h"
#include "calls.h"
#include "options.h"
#include "reports.h"
#include "stores.h"

namespace deltawire::python {
namespace {

using MirrorHandle = Owned<Mirror>;

std::optional<Report> mirrored_report(Result<std::optional<Mirrored>> copied) {
  const std::optional<Mirrored> mirrored = unwrap(std::move(copied));
  if (!mirrored) return {};
  Report out;
  DW_FIELDS(out, *mirrored, version, base, num_objects, num_there, bytes, begins, seconds);
  out["kind"] = mirrored->kind == HopKind::kVersion ? "version" : hop_kind_name(mirrored->kind);
  out["collected"] = mirrored->collected ? nb::object(to_python(*mirrored->collected)) : nb::none();
  return out;
}

Report repair_report(Result<MirrorRepair> repaired) {
  const MirrorRepair repair = unwrap(std::move(repaired));
  Report out;
  DW_FIELDS(out, repair, num_versions, num_hops, num_objects, num_repaired, repaired_bytes);
  return out;
}

void open_mirror(MirrorHandle* self, const StoreHandle& source, const StoreHandle& store,
                 std::optional<uint64_t> keep, int64_t grace_seconds, nb::object keys,
                 nb::object progress, const nb::kwargs& given) {
  MirrorOptions options;
  DW_OPTIONS(options, given, since, all, verify, single_writer, work, transfers, heartbeat, name);
  if (keep) options.keep = GcOptions{.keep = *keep, .grace_seconds = grace_seconds};
  const Keys files = to_keys(keys);
  new (self) MirrorHandle("the mirror", std::move(progress), [&](Progress watch) -> Result<Mirror> {
    options.progress = std::move(watch);
    DW_ASSIGN_OR_RETURN(const Chain chain, Chain::open(source.get(), files));
    return Mirror::open(chain, store.get(), std::move(options));
  });
}

}  // namespace

void bind_mirror(nb::module_& module) {
  bind_owned<Mirror>(module, "Mirror")
      .def("__init__", &open_mirror, nb::arg("source"), nb::arg("store"), nb::arg("keep").none(),
           nb::arg("grace_seconds"), nb::arg("keys"), nb::arg("progress").none(),
           nb::arg("options"))
      .def("next", method(&Mirror::next, mirrored_report))
      .def("repair", method(&Mirror::repair, repair_report))
      .def_prop_ro("run", method(&Mirror::run))
      .def_prop_ro("version", method(&Mirror::version))
      .def_prop_ro("head", method(&Mirror::head))
      .def("close", &MirrorHandle::close);
}

}  // namespace deltawire::python
