// A chain that goes on, with replicas that follow it and have their troubles: for the page.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "cli/context.h"
#include "deltawire/store.h"

namespace deltawire::cli {

struct LiveDemo {
  std::string store;  // as verbs take it
  std::filesystem::path work;
  unsigned num_checkpoints = 0;  // work/train/v0.safetensors, ...
  std::string address;           // of the page
};

// Until Ctrl-C: publishes every second or so, merges and collects. Eight replicas follow: one is
// stopped and goes on every minute, one is killed and started again, one trusts other keys.
Status run_live(const Context& context, const LiveDemo& demo, std::shared_ptr<Store> store);

}  // namespace deltawire::cli
