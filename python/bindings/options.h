// Groups of options: the dataclasses of python/deltawire/_internal/options.py become the library's
// structs.
#pragma once

#include <nanobind/nanobind.h>

#include <optional>

#include <cstdint>
#include "deltawire/publisher.h"
#include "deltawire/replica.h"

namespace deltawire::python {

// TypeError, naming group and field, for a value that is not what the field holds.
Keys to_keys(nanobind::handle group);
Limits to_limits(nanobind::handle group);
CudaOptions to_cuda(nanobind::handle group);
Accept to_accept(nanobind::handle group);
Ranks to_ranks(nanobind::object ranks);           // None: alone
Hook to_hook(nanobind::handle group);             // None: none
AnchorChoice to_anchors(nanobind::handle group);  // "only": OnlyAnchors
PublishOptions to_publish_options(nanobind::handle group);
std::optional<CopyOnWrite> to_copy_on_write(nanobind::handle group);  // None: none

inline PullGoal pull_goal(std::optional<uint64_t> version, std::optional<uint64_t> until,
                          std::optional<uint64_t> head) {
  PullGoal goal = version;
  goal.until = until;
  goal.head = head;
  return goal;
}

}  // namespace deltawire::python
