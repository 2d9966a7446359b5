// What `import` and `export` are told alike.
#pragma once

#include <optional>
#include <string>

#include "cli/command.h"
#include "cli/context.h"
#include "cli/log_options.h"
#include "deltawire/bridge.h"

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
void add_bridge_options(Command* verb, Context& context, BridgeVerbOptions* options);

// Where a work folder lies unless it is given a place: ~/.cache/deltawire/NAME.
Result<std::filesystem::path> cache_folder(const std::string& name);

// One version after the other: `round` moves one, and says whether it did; `done` ends it. With
// --follow it waits for more, and goes on after failures that may pass.
struct BridgeLoop {
  const Context& context;
  const BridgeVerbOptions& options;
  std::string operation;                // "import"
  std::function<Result<bool>()> round;  // false: there is none yet
  std::function<bool()> done;
  std::function<void()> reopen;           // after a failure: what the store holds decides
  std::function<void(double)> wait = {};  // for the next; else by time alone

  Status run() const;
};

}  // namespace deltawire::cli
