#include <deltawire_faults.h>
#include <nanobind/nanobind.h>
#include <nanobind/stl/string_view.h>

#include "bind.h"
#include "deltawire/version.h"
#include "device/cuda.h"
#include "gil.h"
#include "status.h"
#include "stores.h"
#include "tensors.h"

NB_MODULE(_core, module) {
  using namespace deltawire::python;
  nb::set_leak_warnings(DELTAWIRE_FAULTS);  // in development builds only
  module.doc() = "The C++ library. Use the package `deltawire` instead.";
  module.def("version", &deltawire::version);
  module.def("has_cuda", [] { return deltawire::cuda::available().ok(); });
  watch_for_the_end(module);
  bind_status(module);
  bind_tensors(module);
  bind_stores(module);
  bind_hooked_store(module);
  bind_publisher(module);
  bind_replica(module);
  bind_delta(module);
  bind_exchange(module);
  bind_proof(module);
  bind_spool(module);
  bind_computed(module);
  bind_chain(module);
  bind_bridge(module);
  bind_mirror(module);
  bind_serve(module);
  bind_broadcast(module);
  bind_logging(module);
}
