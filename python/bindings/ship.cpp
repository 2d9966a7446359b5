#include "ship/ship.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <tuple>

#include "base/clock.h"
#include "bind.h"
#include "calls.h"
#include "options.h"
#include "reports.h"
#include "stores.h"

namespace deltawire::python {
namespace {

constexpr double kTurnSeconds = 0.1;

// Calls may come from several threads: settle() of one does not hold up report() of another.
using ShipperHandle = Owned<std::shared_ptr<Shipper>>;

void serve(ShipperHandle* self, const StoreHandle& store, double timeout, double answer_timeout,
           const nb::kwargs& given) {
  ShipOptions options;
  DW_OPTIONS(options, given, address, secret, host, open_to_all, backend, buffer_bytes, merge_after,
             keep_versions, keys);
  options.timeout_seconds = timeout;
  options.answer_seconds = answer_timeout;
  new (self) ShipperHandle("the shipper", nb::none(),
                           [&](const Progress&) { return Shipper::listen(store.get(), options); });
}

Report replica_report(const Shipped& one) {
  Report out;
  DW_FIELDS(out, one, name, rank, version, bytes, seconds, error);
  out["address"] = one.from;
  return out;
}

Report ship_report(const ShipReport& report) {
  Report out;
  DW_FIELDS(out, report, version, carrier, epoch, bytes);
  std::vector<Report> replicas;
  for (const Shipped& one : report.replicas) replicas.push_back(replica_report(one));
  out["replicas"] = replicas;
  std::vector<std::tuple<std::string, double, double>> phases;
  for (const Phase& phase : report.phases) phases.emplace_back(phase.name, phase.begin, phase.end);
  out["phases"] = phases;
  out["warnings"] = report.warnings;
  return out;
}

// In short turns, so that Ctrl-C is heard.
void wait_for(ShipperHandle& self, size_t count, double timeout) {
  const Shared<Shipper> shipper = shared(self);
  const double end = steady_seconds() + timeout;
  while (true) {
    const double left = end - steady_seconds();
    const Status status =
        without_gil([&] { return shipper->wait_for(count, std::clamp(left, 0.0, kTurnSeconds)); });
    if (status.ok() || left <= kTurnSeconds) return check(status);
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
  }
}

StoreHandle join(const std::string& address, const std::optional<StoreHandle>& behind,
                 double timeout, const nb::kwargs& given) {
  JoinOptions options;
  DW_OPTIONS(options, given, secret, name, pushed, buffer_bytes, memory_bytes, scratch);
  options.hub = address;
  if (behind) options.behind = behind->get();
  options.timeout_seconds = timeout;
  return StoreHandle(unwrap(without_gil([&] { return join_ship(options); })));
}

}  // namespace

void bind_ship(nb::module_& module) {
  register_ship_stores();
  bind_owned<std::shared_ptr<Shipper>>(module, "Shipper")
      .def("__init__", &serve, nb::arg("store"), nb::arg("timeout"), nb::arg("answer_timeout"),
           nb::arg("options"))
      .def_prop_ro("store", [](ShipperHandle& self) { return StoreHandle(shared(self)->store()); })
      .def_prop_ro("address", [](ShipperHandle& self) { return shared(self)->address(); })
      .def("wait_for", &wait_for, nb::arg("count"), nb::arg("timeout"))
      .def("settle",
           [](ShipperHandle& self) {
             const Shared<Shipper> shipper = shared(self);
             return ship_report(without_gil([&] { return shipper->settle(); }));
           })
      .def("report",
           [](ShipperHandle& self) {
             const Shared<Shipper> shipper = shared(self);
             return ship_report(without_gil([&] { return shipper->report(); }));
           })
      .def("close", &ShipperHandle::close);
  module.def("join_ship", &join, nb::arg("address"), nb::arg("behind").none(), nb::arg("timeout"),
             nb::arg("options"));
}

}  // namespace deltawire::python
