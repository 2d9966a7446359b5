// Converts the option dataclasses of python/deltawire/_internal/options.py to the library's
// structs.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <optional>
#include <type_traits>

#include "deltawire/publisher.h"
#include "deltawire/replica.h"

namespace deltawire::python {

// TypeError names the group and field if a value has the wrong type.
Keys to_keys(nanobind::handle group);
Limits to_limits(nanobind::handle group);
CudaOptions to_cuda(nanobind::handle group);
Accept to_accept(nanobind::handle group);
Ranks to_ranks(nanobind::object ranks);           // None: a single process
Hook to_hook(nanobind::handle group);             // None: no hook
AnchorChoice to_anchors(nanobind::handle group);  // "only": OnlyAnchors
PublishOptions to_publish_options(nanobind::handle group);
std::optional<CopyOnWrite> to_copy_on_write(nanobind::handle group);

// TypeError that names the option.
[[noreturn]] void refuse_option(const char* name, nanobind::handle value);

// Reads a keyword argument; KeyError if it is missing.
template <class T>
void take_option(const nanobind::kwargs& from, const char* name, T* to) {
  const nanobind::object value = from[name];
  if constexpr (std::is_same_v<T, Keys>) {
    *to = to_keys(value);
  } else if constexpr (std::is_same_v<T, Limits>) {
    *to = to_limits(value);
  } else if constexpr (std::is_same_v<T, CudaOptions>) {
    *to = to_cuda(value);
  } else if constexpr (std::is_same_v<T, Accept>) {
    *to = to_accept(value);
  } else if constexpr (std::is_same_v<T, Ranks>) {
    *to = to_ranks(value);
  } else if constexpr (std::is_same_v<T, AnchorChoice>) {
    *to = to_anchors(value);
  } else if constexpr (std::is_same_v<T, std::optional<CopyOnWrite>>) {
    *to = to_copy_on_write(value);
  } else if (!nanobind::try_cast(value, *to)) {
    refuse_option(name, value);
  }
}

// DW_OPTIONS(to, from, a, b): to.a and to.b are the options a and b of `from`.
#define DW_OPTION(to, from, name, ...)  \
  take_option(from, #name, &(to).name); \
  __VA_OPT__(DW_OPTION_AGAIN DW_PARENS(to, from, __VA_ARGS__))
#define DW_OPTION_AGAIN() DW_OPTION
#define DW_OPTIONS(to, from, ...) DW_EXPAND(DW_OPTION(to, from, __VA_ARGS__))

}  // namespace deltawire::python
