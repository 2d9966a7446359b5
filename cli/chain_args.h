// What verbs that look at a chain share: the store, its options, the key that is trusted.
#pragma once

#include <string>

#include "cli/command.h"
#include "cli/context.h"
#include "deltawire/chain.h"
#include "deltawire/store.h"

namespace deltawire::cli {

struct ChainArgs {
  std::string store, trust;
  StoreOptions store_options;
};

// STORE, --trust and the options of stores. `args` must live until the command line is parsed.
void add_chain_args(Command* verb, ChainArgs* args);
// NotFound when the store holds no run.
Result<Chain> open_chain(const ChainArgs& args);
// The head; NotFound when nothing was published yet.
Result<uint64_t> head_of(const Chain& chain);

// A part of a version, a hop record: {"name", "bytes", "sha_256"}.
nlohmann::ordered_json parts_json(const std::vector<PartRef>& parts);

}  // namespace deltawire::cli
