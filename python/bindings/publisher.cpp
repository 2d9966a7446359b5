#include "deltawire/publisher.h"

#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bind.h"
#include "calls.h"
#include "options.h"
#include "reports.h"
#include "stores.h"
#include "tensors.h"

namespace deltawire::python {
namespace {

using Paths = std::vector<std::filesystem::path>;
using PublisherHandle = Owned<Publisher>;

void open_publisher(PublisherHandle* self, const StoreHandle& store,
                    const std::optional<std::filesystem::path>& folder, bool pinned,
                    nb::object rare, nb::object progress, const nb::kwargs& given) {
  PublishOptions options = to_publish_options(rare);
  DW_OPTIONS(options, given, anchors, keys, ranks, codec, quantization);
  options.snapshot = folder ? SnapshotPlace(SnapshotInFolder{*folder, false})
                            : SnapshotPlace(SnapshotInMemory{pinned});
  new (self) PublisherHandle("the publisher", std::move(progress), [&](Progress watch) {
    options.progress = std::move(watch);
    return Publisher::open(store.get(), options);
  });
}

template <auto kMethod>
auto tensors_to() {
  return [](PublisherHandle& self, const std::vector<const Tensor*>& tensors,
            const std::optional<Paths>& extra_files, std::optional<uint64_t> step) {
    const std::vector<PublishTensor> wanted = to_publish(tensors);
    return ForPython()(self.call(
        [&](Publisher& publisher) { return (publisher.*kMethod)(wanted, extra_files, step); }));
  };
}

}  // namespace

void bind_publisher(nb::module_& module) {
  bind_owned<Publisher>(module, "Publisher")
      .def("__init__", &open_publisher, nb::arg("store"), nb::arg("folder").none(),
           nb::arg("pinned"), nb::arg("options"), nb::arg("progress").none(), nb::arg("given"))
      .def_prop_ro("run", method(&Publisher::run))
      .def("memory",
           [](PublisherHandle& self) {
             const SnapshotMemory memory =
                 self.call([](Publisher& publisher) { return publisher.memory(); });
             Report out;
             DW_FIELDS(out, memory, host, pinned, device, disk);
             return out;
           })
      .def("publish", tensors_to<&Publisher::publish>(), nb::arg("tensors"),
           nb::arg("extra_files").none(), nb::arg("step").none())
      .def("capture", tensors_to<&Publisher::capture>(), nb::arg("tensors"),
           nb::arg("extra_files").none(), nb::arg("step").none())
      .def("finish", method(&Publisher::finish))
      .def("publish_checkpoint", method(&Publisher::publish_checkpoint), nb::arg("checkpoint"))
      .def("check_process", &PublisherHandle::check_process)
      .def("close", &PublisherHandle::close)
      .def_prop_ro("closed", &PublisherHandle::closed);
}

}  // namespace deltawire::python
