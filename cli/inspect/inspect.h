// What `inspect` shows: one function per kind of file.
#pragma once

#include <string>

#include "bridge/bridge.h"
#include "cli/context.h"

namespace deltawire::cli {

struct InspectOptions {
  std::string path;
  std::string tensor;  // look at this one only; empty: at all
  bool all = false;    // list every tensor
};

inline constexpr size_t kListedTensors = 20;

Status inspect_checkpoint(const Context& context, const InspectOptions& options);
Status inspect_delta(const Context& context, const InspectOptions& options);
// Another project's version, or all of them.
Status inspect_foreign(const Context& context, const InspectOptions& options,
                       const ForeignPath& path);

}  // namespace deltawire::cli
