#include "live/spool.h"

#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "base/folder_events.h"
#include "bind.h"
#include "calls.h"
#include "options.h"
#include "reports.h"
#include "stores.h"

namespace deltawire::python {
namespace {

using SpoolHandle = Owned<Spool>;

void open_spool(SpoolHandle* self, const StoreHandle& store, const std::filesystem::path& local,
                const nb::kwargs& given) {
  SpoolOptions options;
  DW_OPTIONS(options, given, accept);
  new (self) SpoolHandle("the spool", nb::none(), [&](Progress watch) {
    options.progress = std::move(watch);
    return Spool::open(store.get(), local, options);
  });
}

}  // namespace

void bind_spool(nb::module_& module) {
  nb::class_<SpoolHandle> type = bind_owned<Spool>(module, "Spool");
  type.def("__init__", &open_spool, nb::arg("store"), nb::arg("local"), nb::arg("options"))
      .def(
          "fetch_new",
          [](SpoolHandle& self, std::optional<uint64_t> held, std::optional<uint64_t> needed) {
            return to_tuple(
                unwrap(self.call([&](Spool& spool) { return spool.fetch_new(held, needed); })));
          },
          nb::arg("held").none(), nb::arg("needed").none())
      .def(
          "want",
          [](SpoolHandle& self, const std::optional<WorkerLayouts>& layouts) {
            check(self.call([&](Spool& spool) { return spool.want(layouts); }));
          },
          nb::arg("layouts").none())
      .def_prop_ro("fetched_bytes",
                   [](SpoolHandle& self) {
                     return self.call([](Spool& spool) { return spool.fetched_bytes(); });
                   })
      .def_prop_ro("store", [](SpoolHandle& self) {
        return StoreHandle(self.call([](Spool& spool) { return spool.store(); }));
      });

  module.def(
      "newest_spooled",
      [](const std::filesystem::path& local, const std::string& layout) {
        return to_tuple(without_gil([&] { return newest_spooled(local, layout); }));
      },
      nb::arg("local"), nb::arg("layout") = "");
  module.def(
      "spooled_deltas",
      [](const std::filesystem::path& local, const IdentityTuple& from, const IdentityTuple& to,
         const std::string& layout) {
        std::vector<std::vector<std::string>> paths;
        for (const std::vector<PartFile>& delta : unwrap(without_gil([&] {
               return spooled_deltas(local, to_identity(from), to_identity(to), layout);
             }))) {
          std::vector<std::string>& own = paths.emplace_back();
          for (const PartFile& part : delta) own.push_back(part.path.string());
        }
        return paths;
      },
      nb::arg("local"), nb::arg("from_identity"), nb::arg("to_identity"), nb::arg("layout") = "");

  nb::class_<FolderEvents>(module, "FolderEvents")
      .def(nb::init<>())
      .def("watch", &FolderEvents::watch, nb::arg("folder"), nb::arg("writes") = false)
      .def(
          "wait",
          [](FolderEvents& self, double seconds) {
            return without_gil([&] { return self.wait(seconds); });
          },
          nb::arg("seconds"))
      .def("wake", &FolderEvents::wake);
}

}  // namespace deltawire::python
