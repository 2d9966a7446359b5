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
using VersionNumber = std::optional<uint64_t>;

std::optional<Report> mirrored_report(const std::optional<Mirrored>& mirrored) {
  if (!mirrored) return {};
  Report out;
  DW_FIELDS(out, *mirrored, version, base, num_objects, num_there, bytes, begins, seconds);
  out["kind"] = mirrored->kind == HopKind::kVersion ? "version" : hop_kind_name(mirrored->kind);
  out["collected"] = mirrored->collected ? nb::object(to_python(*mirrored->collected)) : nb::none();
  return out;
}

Report repair_report(const MirrorRepair& repair) {
  Report out;
  DW_FIELDS(out, repair, num_versions, num_hops, num_objects, num_repaired, repaired_bytes);
  return out;
}

void open_mirror(MirrorHandle* self, const StoreHandle& source, const StoreHandle& store,
                 VersionNumber since, bool all, VersionNumber keep, int64_t grace_seconds,
                 bool verify, bool single_writer, const std::filesystem::path& work,
                 unsigned transfers, bool heartbeat, const std::string& name, nb::object keys,
                 nb::object progress) {
  MirrorOptions options;
  options.since = since;
  options.all = all;
  if (keep) {
    GcOptions retention;
    retention.keep = *keep;
    retention.grace_seconds = grace_seconds;
    options.keep = retention;
  }
  options.verify = verify;
  options.single_writer = single_writer;
  options.work = work;
  options.transfers = transfers;
  options.heartbeat = heartbeat;
  options.name = name;
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
      .def("__init__", &open_mirror, nb::arg("source"), nb::arg("store"), nb::kw_only(),
           nb::arg("since").none(), nb::arg("all"), nb::arg("keep").none(),
           nb::arg("grace_seconds"), nb::arg("verify"), nb::arg("single_writer"), nb::arg("work"),
           nb::arg("transfers"), nb::arg("heartbeat"), nb::arg("name"), nb::arg("keys"),
           nb::arg("progress").none())
      .def(
          "next",
          [](MirrorHandle& self) {
            return mirrored_report(unwrap(self.call([](Mirror& mirror) { return mirror.next(); })));
          })
      .def(
          "repair",
          [](MirrorHandle& self) {
            return repair_report(unwrap(self.call([](Mirror& mirror) { return mirror.repair(); })));
          })
      .def_prop_ro(
          "run",
          [](MirrorHandle& self) { return self.call([](Mirror& mirror) { return mirror.run(); }); })
      .def_prop_ro("version",
                   [](MirrorHandle& self) {
                     return self.call([](Mirror& mirror) { return mirror.version(); });
                   })
      .def_prop_ro("head",
                   [](MirrorHandle& self) {
                     return self.call([](Mirror& mirror) { return mirror.head(); });
                   })
      .def("close", &MirrorHandle::close);
}

}  // namespace deltawire::python
