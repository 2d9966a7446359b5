// What calls report, as dicts: python/deltawire/reports.py makes dataclasses of them.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/typing.h>

#include "deltawire/delta.h"
#include "deltawire/publisher.h"
#include "deltawire/replica.h"

namespace deltawire::python {

namespace nb = nanobind;
using Report = nb::typed<nb::dict, nb::str, nb::any>;

Report to_python(const PublishReport& report);
Report to_python(const PullReport& report);
Report to_python(const ReplicaState& state);
Report to_python(const DiffReport& report);
Report to_python(const ApplyReport& report);
Report to_python(const VerifyReport& report);

}  // namespace deltawire::python
