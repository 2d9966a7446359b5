// What `import` and `export` are told alike.
#pragma once

#include <optional>
#include <string>

#include "bridge/bridge.h"
#include "cli/cache_folder.h"
#include "cli/command.h"
#include "cli/context.h"
#include "cli/log_options.h"
#include "cli/step_loop.h"

namespace deltawire::cli {

struct BridgeVerbOptions {
  std::string dialect;
  std::optional<uint64_t> version, from, to;
  std::string work;
  uint64_t memory_bytes = 0;
  bool follow = false;
  double interval = 5;
  LogOptions log;
  StoreOptions store_options;

  // --version is a range of one.
  BridgeRange range() const;
};

// DIALECT comes first: call it before the other arguments are added.
void add_dialect(Command* verb, BridgeVerbOptions* options);
// Returns --follow.
Option* add_bridge_options(Command* verb, Context& context, BridgeVerbOptions* options);

}  // namespace deltawire::cli
