#include "deltawire/replica.h"

#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bind.h"
#include "calls.h"
#include "deltawire/tensor_replica.h"
#include "options.h"
#include "replica/follow_watch.h"
#include "reports.h"
#include "stores.h"
#include "tensors.h"

namespace deltawire::python {
namespace {

using ReplicaHandle = Owned<Replica>;

void open_replica(ReplicaHandle* self, const StoreHandle& store, const std::filesystem::path& local,
                  nb::object progress, const nb::kwargs& given) {
  ReplicaOptions options;
  DW_OPTIONS(options, given, accept, limits, copy_on_write, repair, verify_all, heartbeat, name);
  new (self) ReplicaHandle("the replica", std::move(progress), [&](Progress watch) {
    options.progress = std::move(watch);
    return Replica::open(store.get(), local, options);
  });
}

std::optional<Report> state_of(ReplicaHandle& self) {
  const std::optional<ReplicaState> state =
      self.call([](Replica& replica) { return replica.state(); });
  if (!state) return {};
  return to_python(*state);
}

// Python's deltawire._core.Watch: sleeps until there may be a new version.
class Watch {
 public:
  // Without the GIL: it queries the store, whose threads may need the GIL.
  explicit Watch(const StoreHandle& store) : store_(store) {
    without_gil([&] { watch_.emplace(*store_.get()); });
  }

  // `meanwhile` is called soon after an object was received. Returns true if there may be a new
  // version. Only Python's main thread receives signals; others wait without the GIL.
  bool wait(double seconds, const std::optional<nb::callable>& meanwhile) {
    std::optional<nb::python_error> raised;
    const bool is_main = ::getpid() == ::syscall(SYS_gettid);
    const auto stop = [&] {
      return is_main && with_gil(true, [&] {
               if (!raised && PyErr_CheckSignals() != 0) raised.emplace();
               return raised.has_value();
             });
    };
    std::function<void()> work;
    if (meanwhile) {
      work = [&] {
        with_gil(true, [&] {
          try {
            if (!raised) (*meanwhile)();
          } catch (nb::python_error& error) {
            raised.emplace(std::move(error));
          }
          return true;
        });
      };
    }
    const bool news = without_gil([&] { return watch_->wait(seconds, stop, work); });
    if (raised) throw nb::python_error(std::move(*raised));
    return news;
  }

  void wake() { watch_->wake(); }

 private:
  const StoreHandle store_;  // destroyed without the GIL
  std::optional<FollowWatch> watch_;
};

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

void bind_replica(nb::module_& module) {
  nb::class_<ReplicaHandle> type = bind_owned<Replica>(module, "Replica");
  bind_pulling(type);
  type.def("__init__", &open_replica, nb::arg("store"), nb::arg("local"),
           nb::arg("progress").none(), nb::arg("options"))
      .def_prop_ro("state", &state_of)
      .def("settle",
           [](ReplicaHandle& self) {
             check(self.call([](Replica& replica) { return replica.settle(); }));
           })
      .def(
          "set_serving",
          [](ReplicaHandle& self, const std::optional<IdentityTuple>& serving,
             std::optional<double> pause_seconds) {
            const auto identity =
                serving ? std::optional(to_identity(*serving)) : std::optional<Identity>();
            check(self.call(
                [&](Replica& replica) { return replica.set_serving(identity, pause_seconds); }));
          },
          nb::arg("serving").none(), nb::arg("pause_seconds") = nb::none());

  module.def(
      "read_replica_state",
      [](const std::filesystem::path& local) {
        return to_python(unwrap(without_gil([&] { return read_replica_state(local); })));
      },
      nb::arg("local"));

  nb::class_<Watch>(module, "Watch")
      .def(nb::init<const StoreHandle&>(), nb::arg("store"))
      .def("wait", &Watch::wait, nb::arg("seconds"), nb::arg("meanwhile").none() = nb::none())
      .def("wake", &Watch::wake);
  module.def("follow_jitter", &follow_jitter, nb::arg("interval"));
  module.def("follow_backoff", &follow_backoff, nb::arg("failures"), nb::arg("interval"));

  // keep_alive: the tensors must outlive the replica.
  nb::class_<TensorReplicaHandle> tensors = bind_owned<TensorReplica>(module, "TensorReplica");
  bind_pulling(tensors);
  tensors
      .def("__init__", &open_tensor_replica, nb::arg("store"), nb::arg("tensors"),
           nb::arg("progress").none(), nb::arg("options"), nb::keep_alive<1, 3>())
      .def_prop_ro("version", method(&TensorReplica::version));
}

}  // namespace deltawire::python
