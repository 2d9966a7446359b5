// Other projects' files and chains, both ways.
#include "bridge/bridge.h"

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

using std::filesystem::path;
using ImporterHandle = Owned<Importer>;
using ExporterHandle = Owned<Exporter>;

Report foreign_report(const ForeignSummary& summary) {
  Report out;
  DW_FIELDS(out, summary, dialect, version, base, full, encoding, checksum, num_tensors, num_files,
            file_bytes);
  return out;
}

std::optional<Report> imported_report(Result<std::optional<ImportedVersion>> outcome) {
  const std::optional<ImportedVersion> imported = unwrap(std::move(outcome));
  if (!imported) return {};
  Report out;
  DW_FIELDS(out, *imported, version, base, read_seconds, seconds);
  out["source"] = imported->source ? nb::object(foreign_report(*imported->source)) : nb::none();
  out["published"] = to_python(imported->published);
  return out;
}

std::optional<Report> exported_report(Result<std::optional<ExportedVersion>> outcome) {
  const std::optional<ExportedVersion> exported = unwrap(std::move(outcome));
  if (!exported) return {};
  Report out;
  DW_FIELDS(out, *exported, note, seconds);
  out["target"] = foreign_report(exported->target);
  return out;
}

void take_range(const nb::kwargs& given, BridgeRange* range) {
  take_option(given, "first", &range->from);
  take_option(given, "last", &range->to);
}

void open_importer(ImporterHandle* self, const std::string& dialect, const StoreHandle& source,
                   const StoreHandle& store, const path& work, bool per_run, nb::object rare,
                   nb::object progress, const nb::kwargs& given) {
  ImportOptions options;
  options.dialect = dialect;
  DW_OPTIONS(options, given, base, source_moved, source_may_be_empty, missing_is_unchanged,
             memory_bytes);
  take_range(given, &options.range);
  options.publish = to_publish_options(rare);
  options.publish.snapshot = SnapshotInFolder{work, per_run};
  DW_OPTIONS(options.publish, given, anchors, keys, codec);
  new (self) ImporterHandle("the importer", std::move(progress), [&](Progress watch) {
    options.publish.progress = std::move(watch);
    return Importer::open(source.get(), store.get(), std::move(options));
  });
}

void open_exporter(ExporterHandle* self, const std::string& dialect, const StoreHandle& store,
                   const StoreHandle& target, nb::object keys, nb::object progress,
                   const nb::kwargs& given) {
  ExportOptions options;
  options.dialect = dialect;
  DW_OPTIONS(options, given, encoding, checksum, buffer_bytes, full, anchor_every, work,
             memory_bytes, threads);
  take_range(given, &options.range);
  const Keys files = to_keys(keys);
  new (self)
      ExporterHandle("the exporter", std::move(progress), [&](Progress watch) -> Result<Exporter> {
        options.progress = std::move(watch);
        DW_ASSIGN_OR_RETURN(const Chain chain, Chain::open(store.get(), files));
        return Exporter::open(chain, target.get(), std::move(options));
      });
}

}  // namespace

void bind_bridge(nb::module_& module) {
  module.def("dialects", [] {
    Report out;
    for (const DialectName& dialect : dialect_names()) out[dialect.name.c_str()] = dialect.title;
    return out;
  });
  bind_owned<Importer>(module, "Importer")
      .def("__init__", &open_importer, nb::arg("dialect"), nb::arg("source"), nb::arg("store"),
           nb::arg("work"), nb::arg("per_run"), nb::arg("options"), nb::arg("progress").none(),
           nb::arg("given"))
      .def("next", method(&Importer::next, imported_report))
      .def_prop_ro("done", method(&Importer::done))
      .def_prop_ro("head", method(&Importer::head))
      .def_prop_ro("run", method(&Importer::run))
      .def("close", &ImporterHandle::close);
  bind_owned<Exporter>(module, "Exporter")
      .def("__init__", &open_exporter, nb::arg("dialect"), nb::arg("store"), nb::arg("target"),
           nb::arg("keys"), nb::arg("progress").none(), nb::arg("options"))
      .def("next", method(&Exporter::next, exported_report))
      .def_prop_ro("done", method(&Exporter::done))
      .def_prop_ro("num_skipped", method(&Exporter::num_skipped))
      .def("close", &ExporterHandle::close);
}

}  // namespace deltawire::python
