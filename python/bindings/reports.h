// What calls report, as dicts: python/deltawire/reports.py makes dataclasses of them.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/typing.h>

#include <optional>
#include <string>
#include <tuple>

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

}  // namespace deltawire::python
