#include "carrier/hub.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <tuple>

#include "base/clock.h"
#include "bind.h"
#include "calls.h"

namespace deltawire::python {
namespace {

using HubHandle = Owned<std::shared_ptr<Hub>>;
using MemberHandle = Owned<std::shared_ptr<Member>>;

template <class T>
Result<std::shared_ptr<T>> as_shared(Result<std::unique_ptr<T>> made) {
  if (!made.ok()) return std::move(made).status();
  return std::shared_ptr<T>(std::move(*made));
}

// call(seconds) in short turns, so that Ctrl-C is heard. `goes_on()`: a turn that failed was only
// too short.
template <class Call, class GoesOn>
auto in_turns(double timeout, const Call& call, const GoesOn& goes_on) {
  const double end = steady_seconds() + timeout;
  for (;;) {
    const double left = end - steady_seconds();
    auto result = without_gil([&] { return call(std::clamp(left, 0.0, 0.1)); });
    const bool late = !result.ok() && [&] {
      if constexpr (requires { result.code(); })
        return result.code() == Code::kUnavailable;
      else
        return result.status().code() == Code::kUnavailable;
    }();
    if (!late || left <= 0.1 || !without_gil(goes_on)) return result;
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
  }
}

nb::bytes as_bytes(const std::string& text) { return nb::bytes(text.data(), text.size()); }
std::string_view as_text(const nb::bytes& bytes) { return {bytes.c_str(), bytes.size()}; }

bool is_present(const Hub& hub, uint64_t member) {
  const auto members = hub.members();
  return std::any_of(members.begin(), members.end(),
                     [&](const MemberInfo& info) { return info.id == member; });
}

nb::bytes receive_from(HubHandle& self, uint64_t member, double timeout) {
  const auto hub = shared(self);
  return as_bytes(unwrap(in_turns(
      timeout, [&](double seconds) { return hub->hear(member, seconds); },
      [&] { return is_present(*hub, member); })));
}

void bind_member(nb::module_& module) {
  bind_owned<std::shared_ptr<Member>>(module, "Member")
      .def(
          "__init__",
          [](MemberHandle* self, const std::string& hub, const std::string& secret,
             const std::string& name, nb::bytes hello, double timeout) {
            MemberOptions options;
            options.hub = hub;
            options.secret = Secret(secret);
            options.name = name;
            options.hello = as_text(hello);
            options.timeout_seconds = timeout;
            new (self) MemberHandle("the member", nb::none(), [&](const Progress&) {
              return as_shared(Member::join(options));
            });
          },
          nb::arg("hub"), nb::arg("secret"), nb::arg("name"), nb::arg("hello"), nb::arg("timeout"))
      .def_prop_ro("id", [](MemberHandle& self) { return shared(self)->id(); })
      .def_prop_ro("address", [](MemberHandle& self) { return shared(self)->address(); })
      .def_prop_ro("lost", [](MemberHandle& self) { return shared(self)->lost(); })
      .def(
          "send",
          [](MemberHandle& self, nb::bytes message, double timeout) {
            const auto member = shared(self);
            const std::string_view text = as_text(message);
            check(without_gil([&] { return member->tell(text, timeout); }));
          },
          nb::arg("message"), nb::arg("timeout"))
      .def(
          "receive",
          [](MemberHandle& self, double timeout) {
            const auto member = shared(self);
            return as_bytes(unwrap(in_turns(
                timeout, [&](double seconds) { return member->hear(seconds); },
                [&] { return !member->lost(); })));
          },
          nb::arg("timeout"))
      .def("abort", [](MemberHandle& self) { shared(self)->abort(); })
      .def("close", [](MemberHandle& self) { self.close(); });
}

}  // namespace

void bind_hub(nb::module_& module) {
  bind_owned<std::shared_ptr<Hub>>(module, "Hub")
      .def(
          "__init__",
          [](HubHandle* self, const std::string& address, const std::string& secret,
             bool open_to_all, unsigned max_members, double handshake_timeout, double silence) {
            HubOptions options;
            options.address = address;
            options.secret = Secret(secret);
            options.open_to_all = open_to_all;
            options.max_members = max_members;
            options.handshake_timeout_seconds = handshake_timeout;
            options.silence_seconds = silence;
            new (self) HubHandle("the hub", nb::none(),
                                 [&](const Progress&) { return as_shared(Hub::listen(options)); });
          },
          nb::arg("address"), nb::arg("secret"), nb::arg("open_to_all"), nb::arg("max_members"),
          nb::arg("handshake_timeout"), nb::arg("silence"))
      .def_prop_ro("address", [](HubHandle& self) { return shared(self)->address(); })
      .def("members",
           [](HubHandle& self) {
             std::vector<std::tuple<uint64_t, std::string, nb::bytes, std::string>> infos;
             const auto hub = shared(self);
             // The hub's thread may have its lock, and log who went: that takes the GIL.
             for (const MemberInfo& info : without_gil([&] { return hub->members(); })) {
               infos.emplace_back(info.id, info.name, as_bytes(info.hello), info.from);
             }
             return infos;
           })
      .def(
          "wait_for",
          [](HubHandle& self, size_t count, double timeout) {
            const auto hub = shared(self);
            check(in_turns(
                timeout, [&](double seconds) { return hub->wait_for(count, seconds); },
                [] { return true; }));
          },
          nb::arg("count"), nb::arg("timeout"))
      .def(
          "send",
          [](HubHandle& self, uint64_t member, nb::bytes message, double timeout) {
            const auto hub = shared(self);
            const std::string_view text = as_text(message);
            check(without_gil([&] { return hub->tell(member, text, timeout); }));
          },
          nb::arg("member"), nb::arg("message"), nb::arg("timeout"))
      .def("receive", &receive_from, nb::arg("member"), nb::arg("timeout"))
      .def(
          "dismiss",
          [](HubHandle& self, uint64_t member, const std::string& reason) {
            const auto hub = shared(self);
            without_gil([&] { hub->dismiss(member, reason); });
          },
          nb::arg("member"), nb::arg("reason"))
      .def("close", [](HubHandle& self) { self.close(); });
  bind_member(module);
}

}  // namespace deltawire::python
