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
using Number = std::optional<uint64_t>;

Report foreign_report(const ForeignSummary& summary) {
  Report out;
  DW_FIELDS(out, summary, dialect, version, base, full, encoding, checksum, num_tensors, num_files,
            file_bytes);
  return out;
}

std::optional<Report> imported_report(const std::optional<ImportedVersion>& imported) {
  if (!imported) return {};
  Report out;
  DW_FIELDS(out, *imported, version, base, read_seconds, seconds);
  out["source"] = imported->source ? nb::object(foreign_report(*imported->source)) : nb::none();
  out["published"] = to_python(imported->published);
  return out;
}

std::optional<Report> exported_report(const std::optional<ExportedVersion>& exported) {
  if (!exported) return {};
  Report out;
  DW_FIELDS(out, *exported, note, seconds);
  out["target"] = foreign_report(exported->target);
  return out;
}

void open_importer(ImporterHandle* self, const std::string& dialect, const StoreHandle& source,
                   const StoreHandle& store, const path& base, const path& work, bool per_run,
                   Number first, Number last, bool source_moved, bool source_may_be_empty,
                   bool missing_is_unchanged, double settle_seconds, uint64_t memory_bytes,
                   nb::object anchors, nb::object keys, const std::string& codec, nb::object rare,
                   nb::object progress) {
  ImportOptions options;
  options.dialect = dialect;
  options.base = base;
  options.range = {first, last};
  options.source_moved = source_moved;
  options.source_may_be_empty = source_may_be_empty;
  options.missing_is_unchanged = missing_is_unchanged;
  options.settle_seconds = settle_seconds;
  options.memory_bytes = memory_bytes;
  options.publish = to_publish_options(rare);
  options.publish.snapshot = SnapshotInFolder{work, per_run};
  options.publish.anchors = to_anchors(anchors);
  options.publish.keys = to_keys(keys);
  options.publish.codec = codec;
  new (self) ImporterHandle("the importer", std::move(progress), [&](Progress watch) {
    options.publish.progress = std::move(watch);
    return Importer::open(source.get(), store.get(), std::move(options));
  });
}

void open_exporter(ExporterHandle* self, const std::string& dialect, const StoreHandle& store,
                   const StoreHandle& target, const path& work, Number first, Number last,
                   const std::string& encoding, const std::string& checksum, uint64_t buffer_bytes,
                   bool full, Number anchor_every, uint64_t memory_bytes, unsigned threads,
                   nb::object keys, nb::object progress) {
  ExportOptions options;
  options.dialect = dialect;
  options.encoding = encoding;
  options.checksum = checksum;
  options.buffer_bytes = buffer_bytes;
  options.range = {first, last};
  options.full = full;
  options.anchor_every = anchor_every;
  options.work = work;
  options.memory_bytes = memory_bytes;
  options.threads = threads;
  const Keys files = to_keys(keys);
  new (self)
      ExporterHandle("the exporter", std::move(progress), [&](Progress watch) -> Result<Exporter> {
        options.progress = std::move(watch);
        DW_ASSIGN_OR_RETURN(const Chain chain, Chain::open(store.get(), files));
        return Exporter::open(chain, target.get(), std::move(options));
      });
}

void bind_importer(nb::module_& module) {
  bind_owned<Importer>(module, "Importer")
      .def("__init__", &open_importer, nb::arg("dialect"), nb::arg("source"), nb::arg("store"),
           nb::kw_only(), nb::arg("base"), nb::arg("work"), nb::arg("per_run"),
           nb::arg("first").none(), nb::arg("last").none(), nb::arg("source_moved"),
           nb::arg("source_may_be_empty"), nb::arg("missing_is_unchanged"),
           nb::arg("settle_seconds"), nb::arg("memory_bytes"), nb::arg("anchors"), nb::arg("keys"),
           nb::arg("codec"), nb::arg("options"), nb::arg("progress").none())
      .def("next",
           [](ImporterHandle& self) {
             return imported_report(
                 unwrap(self.call([](Importer& importer) { return importer.next(); })));
           })
      .def_prop_ro("done",
                   [](ImporterHandle& self) {
                     return self.call([](Importer& importer) { return importer.done(); });
                   })
      .def_prop_ro("head",
                   [](ImporterHandle& self) {
                     return self.call([](Importer& importer) { return importer.head(); });
                   })
      .def_prop_ro("run",
                   [](ImporterHandle& self) {
                     return self.call([](Importer& importer) { return importer.run(); });
                   })
      .def("close", &ImporterHandle::close);
}

void bind_exporter(nb::module_& module) {
  bind_owned<Exporter>(module, "Exporter")
      .def("__init__", &open_exporter, nb::arg("dialect"), nb::arg("store"), nb::arg("target"),
           nb::kw_only(), nb::arg("work"), nb::arg("first").none(), nb::arg("last").none(),
           nb::arg("encoding"), nb::arg("checksum"), nb::arg("buffer_bytes"), nb::arg("full"),
           nb::arg("anchor_every").none(), nb::arg("memory_bytes"), nb::arg("threads"),
           nb::arg("keys"), nb::arg("progress").none())
      .def("next",
           [](ExporterHandle& self) {
             return exported_report(
                 unwrap(self.call([](Exporter& exporter) { return exporter.next(); })));
           })
      .def_prop_ro("done",
                   [](ExporterHandle& self) {
                     return self.call([](Exporter& exporter) { return exporter.done(); });
                   })
      .def_prop_ro("num_skipped",
                   [](ExporterHandle& self) {
                     return self.call([](Exporter& exporter) { return exporter.num_skipped(); });
                   })
      .def("close", &ExporterHandle::close);
}

}  // namespace

void bind_bridge(nb::module_& module) {
  module.def("dialects", [] {
    Report out;
    for (const DialectName& dialect : dialect_names()) out[dialect.name.c_str()] = dialect.title;
    return out;
  });
  bind_importer(module);
  bind_exporter(module);
}

}  // namespace deltawire::python
