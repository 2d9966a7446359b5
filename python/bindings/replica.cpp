#include "deltawire/replica.h"

#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include "bind.h"
#include "calls.h"
#include "options.h"
#include "replica/follow_watch.h"
#include "reports.h"
#include "stores.h"

namespace deltawire::python {
namespace {

using ReplicaHandle = Owned<Replica>;
using MaybeVersion = std::optional<uint64_t>;

void open_replica(ReplicaHandle* self, const StoreHandle& store, const std::filesystem::path& local,
                  nb::object accept, nb::object limits, nb::object copy_on_write, bool repair,
                  bool verify_all, bool feed, bool heartbeat, const std::string& name,
                  nb::object progress) {
  ReplicaOptions options;
  options.accept = to_accept(accept);
  options.limits = to_limits(limits);
  options.copy_on_write = to_copy_on_write(copy_on_write);
  options.repair = repair;
  options.verify_all = verify_all;
  options.feed = feed;
  options.heartbeat = heartbeat;
  options.name = name;
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

// Python's deltawire._core.Watch: sleeps until something may have been published.
class Watch {
 public:
  // It asks the store, whose threads may want the GIL meanwhile.
  explicit Watch(const StoreHandle& store) : store_(store) {
    without_gil([&] { watch_.emplace(*store_.get()); });
  }

  // `meanwhile`: called soon after anything was sent here.
  void wait(double seconds, const std::optional<nb::callable>& meanwhile) {
    std::optional<nb::python_error> raised;
    const auto stop = [&] {
      return with_gil(true, [&] {
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
    without_gil([&] { watch_->wait(seconds, stop, work); });
    if (raised) throw nb::python_error(std::move(*raised));
  }

 private:
  const StoreHandle store_;  // which ends without the GIL
  std::optional<FollowWatch> watch_;
};

}  // namespace

void bind_replica(nb::module_& module) {
  bind_owned<Replica>(module, "Replica")
      .def("__init__", &open_replica, nb::arg("store"), nb::arg("local"), nb::kw_only(),
           nb::arg("accept"), nb::arg("limits"), nb::arg("copy_on_write").none(), nb::arg("repair"),
           nb::arg("verify_all"), nb::arg("feed"), nb::arg("heartbeat"), nb::arg("name"),
           nb::arg("progress").none())
      .def_prop_ro("state", &state_of)
      .def("head",
           [](ReplicaHandle& self) {
             return unwrap(self.call([](Replica& replica) { return replica.head(); }));
           })
      .def(
          "prepare",
          [](ReplicaHandle& self, MaybeVersion version) {
            return to_python(
                unwrap(self.call([&](Replica& replica) { return replica.prepare(version); })));
          },
          nb::arg("version").none())
      .def("prepare_ahead",
           [](ReplicaHandle& self) {
             return self.call([](Replica& replica) { return replica.prepare_ahead(); });
           })
      .def("commit",
           [](ReplicaHandle& self) {
             return to_python(unwrap(self.call([](Replica& replica) { return replica.commit(); })));
           })
      .def("settle",
           [](ReplicaHandle& self) {
             check(self.call([](Replica& replica) { return replica.settle(); }));
           })
      .def(
          "pull",
          [](ReplicaHandle& self, MaybeVersion version, MaybeVersion until, MaybeVersion head) {
            const PullGoal goal = pull_goal(version, until, head);
            return to_python(
                unwrap(self.call([&](Replica& replica) { return replica.pull(goal); })));
          },
          nb::arg("version").none(), nb::arg("until").none() = nb::none(),
          nb::arg("head").none() = nb::none())
      .def(
          "set_serving",
          [](ReplicaHandle& self, const std::optional<IdentityTuple>& serving) {
            const auto identity =
                serving ? std::optional(to_identity(*serving)) : std::optional<Identity>();
            check(self.call([&](Replica& replica) { return replica.set_serving(identity); }));
          },
          nb::arg("serving").none())
      .def("close", &ReplicaHandle::close)
      .def_prop_ro("closed", &ReplicaHandle::closed);

  module.def(
      "read_replica_state",
      [](const std::filesystem::path& local) {
        return to_python(unwrap(without_gil([&] { return read_replica_state(local); })));
      },
      nb::arg("local"));

  nb::class_<Watch>(module, "Watch")
      .def(nb::init<const StoreHandle&>(), nb::arg("store"))
      .def("wait", &Watch::wait, nb::arg("seconds"), nb::arg("meanwhile").none() = nb::none());
  module.def("follow_jitter", &follow_jitter, nb::arg("interval"));
  module.def("follow_backoff", &follow_backoff, nb::arg("failures"), nb::arg("interval"));
}

}  // namespace deltawire::python
