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

void open_tensor_replica(TensorReplicaHandle* self, const StoreHandle& store,
                         const std::vector<const Tensor*>& tensors, nb::object progress,
                         const nb::kwargs& given) {
  TensorReplicaOptions options;
  DW_OPTIONS(options, given, accept, limits, cuda, repair, verify_all, check_commit, heartbeat,
             name, scratch);
  const std::vector<LiveTensor> wanted = to_patch(tensors);
  new (self) TensorReplicaHandle("the replica", std::move(progress), [&](Progress watch) {
    options.progress = std::move(watch);
    return TensorReplica::open(store.get(), wanted, options);
  });
}

}  // namespace

// The tensors outlive the replica: the Python class that holds it holds them too.
void bind_tensor_replica(nb::module_& module) {
  nb::class_<TensorReplicaHandle> type = bind_owned<TensorReplica>(module, "TensorReplica");
  bind_pulling(type);
  type.def("__init__", &open_tensor_replica, nb::arg("store"), nb::arg("tensors"),
           nb::arg("progress").none(), nb::arg("options"), nb::keep_alive<1, 3>())
      .def_prop_ro("version", method(&TensorReplica::version));
}

}  // namespace deltawire::python
