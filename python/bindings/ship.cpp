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

void serve(ShipperHandle* self, const StoreHandle& store, const std::string& address,
           const std::string& secret, const std::string& host, bool open_to_all,
           const std::string& backend, uint64_t buffer_bytes, double timeout, double answer_timeout,
           uint64_t merge_after, uint64_t keep_versions, nb::object keys) {
  ShipOptions options;
  options.address = address;
  options.secret = secret;
  options.host = host;
  options.open_to_all = open_to_all;
  options.backend = backend;
  options.buffer_bytes = buffer_bytes;
  options.timeout_seconds = timeout;
  options.answer_seconds = answer_timeout;
  options.merge_after = merge_after;
  options.keep_versions = keep_versions;
  options.keys = to_keys(keys);
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

StoreHandle join(const std::string& address, const std::string& secret, const std::string& name,
                 const std::optional<StoreHandle>& behind, bool pushed, uint64_t buffer_bytes,
                 uint64_t memory_bytes, const std::string& scratch, double timeout) {
  JoinOptions options;
  options.hub = address;
  options.secret = secret;
  options.name = name;
  if (behind) options.behind = behind->get();
  options.pushed = pushed;
  options.buffer_bytes = buffer_bytes;
  options.memory_bytes = memory_bytes;
  options.scratch = scratch;
  options.timeout_seconds = timeout;
  return StoreHandle(unwrap(without_gil([&] { return join_ship(options); })));
}

}  // namespace

void bind_ship(nb::module_& module) {
  register_ship_stores();
  bind_owned<std::shared_ptr<Shipper>>(module, "Shipper")
      .def("__init__", &serve, nb::arg("store"), nb::kw_only(), nb::arg("address"),
           nb::arg("secret"), nb::arg("host"), nb::arg("open_to_all"), nb::arg("backend"),
           nb::arg("buffer_bytes"), nb::arg("timeout"), nb::arg("answer_timeout"),
           nb::arg("merge_after"), nb::arg("keep_versions"), nb::arg("keys"))
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
  module.def("join_ship", &join, nb::arg("address"), nb::kw_only(), nb::arg("secret"),
             nb::arg("name"), nb::arg("behind").none(), nb::arg("pushed"), nb::arg("buffer_bytes"),
             nb::arg("memory_bytes"), nb::arg("scratch"), nb::arg("timeout"));
}

}  // namespace deltawire::python
