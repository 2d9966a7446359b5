// Results as dicts, which python/deltawire/reports.py turns into dataclasses.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/typing.h>

#include <optional>
#include <string>
#include <tuple>
#include <type_traits>

#include "calls.h"
#include "deltawire/chain.h"
#include "deltawire/delta.h"
#include "deltawire/maintain.h"
#include "deltawire/publisher.h"
#include "deltawire/replica.h"

namespace deltawire::python {

namespace nb = nanobind;
using Report = nb::typed<nb::dict, nb::str, nb::any>;

// DW_FIELDS(out, from, a, b): out["a"] = from.a; out["b"] = from.b;
#define DW_PARENS ()
#define DW_EXPAND(...) DW_EXPAND1(DW_EXPAND1(DW_EXPAND1(DW_EXPAND1(__VA_ARGS__))))
#define DW_EXPAND1(...) DW_EXPAND2(DW_EXPAND2(DW_EXPAND2(DW_EXPAND2(__VA_ARGS__))))
#define DW_EXPAND2(...) DW_EXPAND3(DW_EXPAND3(__VA_ARGS__))
#define DW_EXPAND3(...) __VA_ARGS__
#define DW_FIELD(out, from, name, ...) \
  out[#name] = (from).name;            \
  __VA_OPT__(DW_FIELD_AGAIN DW_PARENS(out, from, __VA_ARGS__))
#define DW_FIELD_AGAIN() DW_FIELD
#define DW_FIELDS(out, from, ...) DW_EXPAND(DW_FIELD(out, from, __VA_ARGS__))

// run, version, manifest: python/deltawire/_internal/identity.py
using IdentityTuple = std::tuple<std::string, uint64_t, std::string>;

inline IdentityTuple to_tuple(const Identity& identity) {
  return {identity.run, identity.version, identity.manifest};
}
inline std::optional<IdentityTuple> to_tuple(const std::optional<Identity>& identity) {
  return identity ? std::optional(to_tuple(*identity)) : std::nullopt;
}
inline Identity to_identity(const IdentityTuple& tuple) {
  return {std::get<0>(tuple), std::get<1>(tuple), std::get<2>(tuple)};
}

Report to_python(const PublishReport& report);
Report to_python(const PullReport& report);
Report to_python(const ReplicaState& state);
Report to_python(const DiffReport& report);
Report to_python(const ApplyReport& report);
Report to_python(const VerifyReport& report);

Report to_python(const VersionRecord& record);
Report to_python(const Plan& plan);
Report to_python(const ListedHeartbeat& listed);
Report to_python(const GcReport& report);
Report to_python(const CompactReport& report);
Report to_python(const AnchorReport& report);
Report to_python(const FsckReport& report);

// Converts a result for Python: unwraps a Result, turns a report into a dict, raises a failed
// Status.
struct ForPython {
  template <class Outcome>
  auto operator()(Outcome outcome) const {
    if constexpr (std::is_same_v<Outcome, Status>) {
      check(std::move(outcome));
    } else if constexpr (requires { std::move(outcome).status(); }) {
      return (*this)(unwrap(std::move(outcome)));
    } else if constexpr (requires { to_python(outcome); }) {
      return to_python(outcome);
    } else {
      return outcome;
    }
  }
};

// Binds a method of an owned object. `convert` converts its result.
template <class R, class T, class... Args, class Convert = ForPython>
auto method(R (T::*call)(Args...), Convert convert = {}) {
  return [call, convert](Owned<T>& self, Args... args) {
    return convert(self.call([&](T& own) { return (own.*call)(args...); }));
  };
}
template <class R, class T, class... Args>
auto method(R (T::*call)(Args...) const) {
  return [call](Owned<T>& self, Args... args) {
    return ForPython()(self.call([&](T& own) { return (own.*call)(args...); }));
  };
}

// The methods that Replica and TensorReplica share.
template <class T>
void bind_pulling(nb::class_<Owned<T>>& type) {
  using Version = std::optional<uint64_t>;
  type.def("head", method(&T::head))
      .def(
          "prepare",
          [](Owned<T>& self, Version version) {
            return ForPython()(self.call([&](T& replica) { return replica.prepare(version); }));
          },
          nb::arg("version").none())
      .def("prepare_ahead", method(&T::prepare_ahead))
      .def("commit", method(&T::commit))
      .def(
          "pull",
          [](Owned<T>& self, Version version, Version until, Version head) {
            PullGoal goal = version;
            goal.until = until;
            goal.head = head;
            return ForPython()(self.call([&](T& replica) { return replica.pull(goal); }));
          },
          nb::arg("version").none(), nb::arg("until").none() = nb::none(),
          nb::arg("head").none() = nb::none())
      .def("close", &Owned<T>::close)
      .def_prop_ro("closed", &Owned<T>::closed);
}

}  // namespace deltawire::python
