// One function per topic; module.cpp calls them all.
#pragma once

#include <nanobind/nanobind.h>

namespace deltawire::python {

void bind_publisher(nanobind::module_& module);
void bind_replica(nanobind::module_& module);
void bind_delta(nanobind::module_& module);
void bind_chain(nanobind::module_& module);
void bind_bridge(nanobind::module_& module);
void bind_mirror(nanobind::module_& module);
void bind_exchange(nanobind::module_& module);
void bind_proof(nanobind::module_& module);
void bind_spool(nanobind::module_& module);
void bind_computed(nanobind::module_& module);
void bind_serve(nanobind::module_& module);
void bind_broadcast(nanobind::module_& module);
void bind_logging(nanobind::module_& module);

}  // namespace deltawire::python
