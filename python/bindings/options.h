// Groups of options: the dataclasses of python/deltawire/options.py become the library's structs.
#pragma once

#include <nanobind/nanobind.h>

#include <optional>

#include "deltawire/publisher.h"
#include "deltawire/replica.h"

namespace deltawire::python {

// TypeError, naming group and field, for a value that is not what the field holds.
Keys to_keys(nanobind::handle group);
Limits to_limits(nanobind::handle group);
CudaOptions to_cuda(nanobind::handle group);
Accept to_accept(nanobind::handle group);
Ranks to_ranks(nanobind::object ranks);                               // None: alone
Hook to_hook(nanobind::handle group);                                 // None: none
AnchorChoice to_anchors(nanobind::handle group);                      // "only": OnlyAnchors
std::optional<CopyOnWrite> to_copy_on_write(nanobind::handle group);  // None: none

}  // namespace deltawire::python
