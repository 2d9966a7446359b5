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

// The package has checked the word.
void open_publisher(PublisherHandle* self, const StoreHandle& store,
                    const std::optional<std::filesystem::path>& folder, bool pinned,
                    nb::object anchors, nb::object keys, nb::object ranks,
                    nb::object hook_before_commit, nb::object limits, nb::object cuda,
                    const std::string& codec, uint64_t part_bytes, bool plain_files,
                    const std::string& quantization, bool schema_change, bool accept_loss,
                    bool new_run, bool single_writer, nb::object progress) {
  PublishOptions options;
  options.snapshot = folder ? SnapshotPlace(SnapshotInFolder{*folder, false})
                            : SnapshotPlace(SnapshotInMemory{pinned});
  options.anchors = to_anchors(anchors);
  options.keys = to_keys(keys);
  options.ranks = to_ranks(ranks);
  options.hook_before_commit = to_hook(hook_before_commit);
  options.limits = to_limits(limits);
  options.cuda = to_cuda(cuda);
  options.codec = codec;
  options.part_bytes = part_bytes;
  options.plain_files = plain_files;
  options.quantization = quantization;
  options.schema_change = schema_change;
  options.accept_loss = accept_loss;
  options.new_run = new_run;
  options.single_writer = single_writer;
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
           nb::arg("hook_before_commit").none(), nb::arg("limits"), nb::arg("cuda"),
           nb::arg("codec"), nb::arg("part_bytes"), nb::arg("plain_files"), nb::arg("quantization"),
           nb::arg("schema_change"), nb::arg("accept_loss"), nb::arg("new_run"),
           nb::arg("single_writer"), nb::arg("progress").none())
      .def_prop_ro("run",
                   [](PublisherHandle& self) {
                     return self.call([](Publisher& publisher) { return publisher.run(); });
                   })
      .def("memory",
           [](PublisherHandle& self) {
             const SnapshotMemory memory =
                 self.call([](Publisher& publisher) { return publisher.memory(); });
             Report out;
             out["host"] = memory.host;
             out["pinned"] = memory.pinned;
             out["device"] = memory.device;
             out["disk"] = memory.disk;
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
