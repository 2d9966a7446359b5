#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <future>

#include "bind.h"
#include "buffer.h"
#include "calls.h"
#include "carrier/tcp/socket_carrier.h"
#include "carriers.h"
#include "watcher.h"

namespace deltawire::python {
namespace {

using Ranked = std::vector<std::pair<unsigned, nb::object>>;

// Buffers of a list, held for one call.
std::vector<std::unique_ptr<Buffer>> held(const Ranked& ranked, Buffer::Access access) {
  std::vector<std::unique_ptr<Buffer>> buffers;
  for (const auto& [rank, object] : ranked) {
    buffers.push_back(std::make_unique<Buffer>(object, access));
  }
  return buffers;
}

// One call at a time; Ctrl-C ends it, and the group with it.
template <class Body>
void call_carrier(const CarrierHandle& handle, const Body& body) {
  const std::shared_ptr<Carrier> carrier = handle.get();
  const std::unique_lock lock(handle.in_use(), std::try_to_lock);
  if (!lock.owns_lock()) {
    throw StatusError(invalid_argument(carrier->name() + ": another thread's call is under way"));
  }
  // What is written in Python hears Ctrl-C itself, and may care which thread it is in.
  const Status status = is_in_python(*carrier) ? without_gil([&] { return body(*carrier); })
                                               : interruptible([&] { return body(*carrier); },
                                                               [&] { carrier->abort(); });
  if (status.ok()) forget_raised();
  check(status);
}

void exchange(const CarrierHandle& handle, const Ranked& to, const Ranked& from, double timeout) {
  const auto out = held(to, Buffer::Access::kRead);
  const auto in = held(from, Buffer::Access::kWrite);
  std::vector<ToRank> sends;
  std::vector<FromRank> receives;
  for (size_t i = 0; i < to.size(); ++i) sends.push_back({to[i].first, out[i]->span()});
  for (size_t i = 0; i < from.size(); ++i) receives.push_back({from[i].first, in[i]->writable()});
  call_carrier(handle,
               [&](Carrier& carrier) { return carrier.exchange(sends, receives, timeout); });
}

void broadcast(const CarrierHandle& handle, unsigned root, nb::object data, double timeout) {
  // The root's bytes are only read.
  const bool is_root = handle.get()->rank() == root;
  const Buffer buffer(data, is_root ? Buffer::Access::kRead : Buffer::Access::kWrite);
  call_carrier(handle, [&](Carrier& carrier) {
    return carrier.broadcast(root, buffer.writable(), timeout);
  });
}

struct GatheringHandle {
  std::shared_ptr<Gathering> gathering;
};

CarrierHandle entered(Result<std::unique_ptr<Carrier>> carrier) {
  return CarrierHandle(unwrap(std::move(carrier)));
}

GroupOptions group_options(unsigned size, const std::string& host, const std::string& secret) {
  GroupOptions options;
  options.size = size;
  options.host = host;
  options.secret = Secret(secret);
  return options;
}

void bind_groups(nb::module_& module) {
  nb::class_<GatheringHandle>(module, "Gathering")
      .def_prop_ro("ticket", [](const GatheringHandle& self) { return self.gathering->ticket(); })
      .def(
          "finish",
          [](GatheringHandle& self, double timeout) {
            const auto gathering = self.gathering;
            return entered(without_gil([&] { return gathering->finish(timeout); }));
          },
          nb::arg("timeout"));
  module.def(
      "open_group",
      [](const std::string& backend, unsigned size, const std::string& host,
         const std::string& secret, double timeout) {
        const auto found = unwrap(find_backend(backend));
        const GroupOptions options = group_options(size, host, secret);
        return GatheringHandle{unwrap(without_gil([&] { return found->open(options, timeout); }))};
      },
      nb::arg("backend"), nb::arg("size"), nb::arg("host"), nb::arg("secret"), nb::arg("timeout"));
  module.def(
      "enter_group",
      [](const std::string& backend, const std::string& ticket, unsigned rank, unsigned size,
         const std::string& secret, double timeout) {
        const auto found = unwrap(find_backend(backend));
        const GroupOptions options = group_options(size, "", secret);
        return entered(without_gil([&] { return found->enter(ticket, rank, options, timeout); }));
      },
      nb::arg("backend"), nb::arg("ticket"), nb::arg("rank"), nb::arg("size"), nb::arg("secret"),
      nb::arg("timeout"));
  module.def("backend_names", &backend_names);
  module.def(
      "add_backend",
      [](nb::object backend) {
        const auto adapted = adapt_backend(std::move(backend));
        without_gil([&] { add_backend(adapted); });
      },
      nb::arg("backend"));
}

}  // namespace

const std::shared_ptr<Carrier>& CarrierHandle::get() const {
  if (!carrier_) throw StatusError(invalid_argument("the carrier is closed"));
  if (getpid() != process_) {
    throw StatusError(invalid_argument(carrier_->name() + ": joined by process " +
                                       std::to_string(process_) +
                                       "; a child that it forked joins a group of its own"));
  }
  return carrier_;
}

void bind_carriers(nb::module_& module) {
  nb::class_<CarrierHandle>(module, "Carrier")
      .def_prop_ro("name", [](const CarrierHandle& self) { return self.get()->name(); })
      .def_prop_ro("rank", [](const CarrierHandle& self) { return self.get()->rank(); })
      .def_prop_ro("size", [](const CarrierHandle& self) { return self.get()->size(); })
      .def("exchange", &exchange, nb::arg("to"), nb::arg("from_"), nb::arg("timeout"))
      .def("broadcast", &broadcast, nb::arg("root"), nb::arg("data"), nb::arg("timeout"))
      .def("lost",
           [](const CarrierHandle& self) {
             const auto carrier = self.get();
             return without_gil([&] { return carrier->lost(); });
           })
      .def("abort",
           [](const CarrierHandle& self) {
             const auto carrier = self.get();
             without_gil([&] { carrier->abort(); });
           })
      .def("close", &CarrierHandle::close);
  module.def(
      "adapt_carrier",
      [](nb::object carrier) { return CarrierHandle(adapt_carrier(std::move(carrier))); },
      nb::arg("carrier"));
  module.def(
      "local_group",
      [](unsigned size) {
        std::vector<CarrierHandle> handles;
        for (auto& carrier : unwrap(make_local_group(size)))
          handles.emplace_back(std::move(carrier));
        return handles;
      },
      nb::arg("size"));
  bind_groups(module);
}

}  // namespace deltawire::python
