#include "deltawire/publisher.h"

#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bind.h"
#include "calls.h"
#include "digests.h"
#include "reports.h"
#include "stores.h"
#include "tensors.h"

namespace deltawire::python {
namespace {

using Paths = std::vector<std::filesystem::path>;
using PublisherHandle = Owned<Publisher>;

void open_publisher(PublisherHandle* self, const StoreHandle& store,
                    const std::filesystem::path& snapshot, const std::string& codec,
                    const std::string& digest, unsigned threads, uint64_t part_bytes,
                    uint64_t memory_limit, bool full, uint64_t anchor_every, bool anchor_by_bytes,
                    bool new_run, bool single_writer, const std::filesystem::path& sign_key,
                    const std::filesystem::path& trust_key, bool change_key,
                    const std::string& hook_before_commit, double hook_timeout_seconds,
                    unsigned rank, unsigned world, double rank_timeout_seconds,
                    uintptr_t cuda_stream, bool pinned_snapshot, uint64_t cuda_scratch_bytes,
                    nb::object progress) {
  PublishOptions options;
  options.codec = codec;
  options.digest = digest_kind(digest);
  options.threads = threads;
  options.part_bytes = part_bytes;
  options.memory_limit = memory_limit;
  options.full = full;
  options.anchor_every = anchor_every;
  options.anchor_by_bytes = anchor_by_bytes;
  options.new_run = new_run;
  options.single_writer = single_writer;
  options.sign_key = sign_key;
  options.trust_key = trust_key;
  options.change_key = change_key;
  options.hook_before_commit = hook_before_commit;
  options.hook_timeout_seconds = hook_timeout_seconds;
  options.rank = rank;
  options.world = world;
  options.rank_timeout_seconds = rank_timeout_seconds;
  options.cuda.stream = reinterpret_cast<CUstream_st*>(cuda_stream);
  options.cuda.pinned_snapshot = pinned_snapshot;
  options.cuda.scratch_bytes = cuda_scratch_bytes;
  new (self) PublisherHandle("the publisher", std::move(progress), [&](Progress watch) {
    options.progress = std::move(watch);
    return Publisher::open(store.get(), snapshot, options);
  });
}

}  // namespace

void bind_publisher(nb::module_& module) {
  bind_owned<Publisher>(module, "Publisher")
      .def("__init__", &open_publisher, nb::arg("store"), nb::arg("snapshot"), nb::kw_only(),
           nb::arg("codec"), nb::arg("digest"), nb::arg("threads"), nb::arg("part_bytes"),
           nb::arg("memory_limit"), nb::arg("full"), nb::arg("anchor_every"),
           nb::arg("anchor_by_bytes"), nb::arg("new_run"), nb::arg("single_writer"),
           nb::arg("sign_key"), nb::arg("trust_key"), nb::arg("change_key"),
           nb::arg("hook_before_commit"), nb::arg("hook_timeout_seconds"), nb::arg("rank"),
           nb::arg("world"), nb::arg("rank_timeout_seconds"), nb::arg("cuda_stream"),
           nb::arg("pinned_snapshot"), nb::arg("cuda_scratch_bytes"), nb::arg("progress").none())
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
