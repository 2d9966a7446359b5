#include "deltawire/tensor_replica.h"

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

using TensorReplicaHandle = Owned<TensorReplica>;
using MaybeVersion = std::optional<uint64_t>;

void open_tensor_replica(TensorReplicaHandle* self, const StoreHandle& store,
                         const std::vector<const Tensor*>& tensors, nb::object accept,
                         nb::object limits, nb::object cuda, bool repair, bool verify_all,
                         bool check_commit, bool heartbeat, const std::string& name,
                         const std::filesystem::path& scratch, nb::object progress) {
  TensorReplicaOptions options;
  options.accept = to_accept(accept);
  options.limits = to_limits(limits);
  options.cuda = to_cuda(cuda);
  options.repair = repair;
  options.verify_all = verify_all;
  options.check_commit = check_commit;
  options.heartbeat = heartbeat;
  options.name = name;
  options.scratch = scratch;
  const std::vector<LiveTensor> wanted = to_patch(tensors);
  new (self) TensorReplicaHandle("the replica", std::move(progress), [&](Progress watch) {
    options.progress = std::move(watch);
    return TensorReplica::open(store.get(), wanted, options);
  });
}

}  // namespace

// The tensors outlive the replica: the Python class that holds it holds them too.
void bind_tensor_replica(nb::module_& module) {
  bind_owned<TensorReplica>(module, "TensorReplica")
      .def("__init__", &open_tensor_replica, nb::arg("store"), nb::arg("tensors"), nb::kw_only(),
           nb::arg("accept"), nb::arg("limits"), nb::arg("cuda"), nb::arg("repair"),
           nb::arg("verify_all"), nb::arg("check_commit"), nb::arg("heartbeat"), nb::arg("name"),
           nb::arg("scratch"), nb::arg("progress").none(), nb::keep_alive<1, 3>())
      .def_prop_ro("version",
                   [](TensorReplicaHandle& self) {
                     return self.call([](TensorReplica& replica) { return replica.version(); });
                   })
      .def("head",
           [](TensorReplicaHandle& self) {
             return unwrap(self.call([](TensorReplica& replica) { return replica.head(); }));
           })
      .def(
          "prepare",
          [](TensorReplicaHandle& self, MaybeVersion version) {
            return to_python(unwrap(
                self.call([&](TensorReplica& replica) { return replica.prepare(version); })));
          },
          nb::arg("version").none())
      .def("prepare_ahead",
           [](TensorReplicaHandle& self) {
             return self.call([](TensorReplica& replica) { return replica.prepare_ahead(); });
           })
      .def("commit",
           [](TensorReplicaHandle& self) {
             return to_python(
                 unwrap(self.call([](TensorReplica& replica) { return replica.commit(); })));
           })
      .def(
          "pull",
          [](TensorReplicaHandle& self, MaybeVersion version, MaybeVersion until,
             MaybeVersion head) {
            const PullGoal goal = pull_goal(version, until, head);
            return to_python(
                unwrap(self.call([&](TensorReplica& replica) { return replica.pull(goal); })));
          },
          nb::arg("version").none(), nb::arg("until").none() = nb::none(),
          nb::arg("head").none() = nb::none())
      .def("close", &TensorReplicaHandle::close)
      .def_prop_ro("closed", &TensorReplicaHandle::closed);
}

}  // namespace deltawire::python
