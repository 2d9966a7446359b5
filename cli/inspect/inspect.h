// What `inspect` shows: one function per kind of file.
#pragma once

#include <algorithm>
#include <string>

#include "bridge/bridge.h"
#include "cli/context.h"

namespace deltawire::cli {

struct InspectOptions {
  std::string path;
  std::string tensor;  // look at this one only; empty: at all
  bool all = false;    // list every tensor
};

// How many of so many tensors are listed, after a heading that says so; `order`: "Tensors, largest
// first", `largest`: "largest tensors".
inline size_t say_listed(const Context& context, size_t count, bool all, std::string_view order,
                         std::string_view largest) {
  const size_t listed = all ? count : std::min<size_t>(count, 20);
  context.say("");
  context.say(listed == count ? fmt::format("{}:", order)
                              : fmt::format("The {} {} (--all lists all):", listed, largest));
  return listed;
}

Status inspect_checkpoint(const Context& context, const InspectOptions& options);
Status inspect_delta(const Context& context, const InspectOptions& options);
// Another project's version, or all of them.
Status inspect_foreign(const Context& context, const InspectOptions& options,
                       const ForeignPath& path);

}  // namespace deltawire::cli
