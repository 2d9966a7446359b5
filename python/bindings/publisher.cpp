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
                    nb::object anchors, nb::object keys, nb::object ranks, const std::string& codec,
                    const std::string& quantization, nb::object rare, nb::object progress) {
  PublishOptions options = to_publish_options(rare);
  options.snapshot = folder ? SnapshotPlace(SnapshotInFolder{*folder, false})
                            : SnapshotPlace(SnapshotInMemory{pinned});
  options.anchors = to_anchors(anchors);
  options.keys = to_keys(keys);
  options.ranks = to_ranks(ranks);
  options.codec = codec;
  options.quantization = quantization;
  new (self) PublisherHandle("the publisher", std::move(progress), [&](Progress watch) {
    options.progress = std::move(watch);
    return Publisher::open(store.get(), options);
  });
}

}  // namespace

void bind_publisher(nb::module_& module) {
  bind_owned<Publisher>(module, "Publisher")
      .def("__init__", &open_publisher, nb::arg("store"), nb::kw_only(), nb::arg("folder").none(),
           nb::arg("pinned"), nb::arg("anchors"), nb::arg("keys"), nb::arg("ranks").none(),
           nb::arg("codec"), nb::arg("quantization"), nb::arg("options"),
           nb::arg("progress").none())
      .def_prop_ro("run",
                   [](PublisherHandle& self) {
                     return self.call([](Publisher& publisher) { return publisher.run(); });
                   })
      .def("memory",
           [](PublisherHandle& self) {
             const SnapshotMemory memory =
                 self.call([](Publisher& publisher) { return publisher.memory(); });
             Report out;
             DW_FIELDS(out, memory, host, pinned, device, disk);
             return out;
           })
      .def(
          "publish",
          [](PublisherHandle& self, const std::vector<const Tensor*>& tensors,
             const std::optional<Paths>& extra_files, std::optional<uint64_t> step) {
            const std::vector<PublishTensor> wanted = to_publish(tensors);
            return to_python(unwrap(self.call([&](Publisher& publisher) {
              return publisher.publish(wanted, extra_files, step);
            })));
          },
          nb::arg("tensors"), nb::arg("extra_files").none(), nb::arg("step").none())
      .def(
          "capture",
          [](PublisherHandle& self, const std::vector<const Tensor*>& tensors,
             const std::optional<Paths>& extra_files, std::optional<uint64_t> step) {
            const std::vector<PublishTensor> wanted = to_publish(tensors);
            check(self.call([&](Publisher& publisher) {
              return publisher.capture(wanted, extra_files, step);
            }));
          },
          nb::arg("tensors"), nb::arg("extra_files").none(), nb::arg("step").none())
      .def("finish",
           [](PublisherHandle& self) {
             return to_python(
                 unwrap(self.call([](Publisher& publisher) { return publisher.finish(); })));
           })
      .def(
          "publish_checkpoint",
          [](PublisherHandle& self, const std::filesystem::path& checkpoint) {
            return to_python(unwrap(self.call(
                [&](Publisher& publisher) { return publisher.publish_checkpoint(checkpoint); })));
          },
          nb::arg("checkpoint"))
      .def("check_process", &PublisherHandle::check_process)
      .def("close", &PublisherHandle::close)
      .def_prop_ro("closed", &PublisherHandle::closed);
}

}  // namespace deltawire::python
