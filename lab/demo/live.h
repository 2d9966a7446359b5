// A continuously growing chain with replicas that sometimes fail, for the page.
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

// Until Ctrl-C, publishes a version about every second, compacts and runs gc. Of eight replicas,
// one is suspended every minute, one is killed and restarted, and one trusts other keys.
Status run_live(const Context& context, const LiveDemo& demo, std::shared_ptr<Store> store);

}  // namespace deltawire::cli
