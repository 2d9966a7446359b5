// `publish --ship`: versions go to replicas straight away, as well as to the store.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "cli/command.h"
#include "cli/context.h"
#include "deltawire/publisher.h"
#include "ship/ship.h"

namespace deltawire::cli {

struct ShipVerbOptions {
  std::string address;  // empty: nothing is shipped
  std::string secret_file;
  unsigned wait = 0;  // replicas, before the first version
  double wait_seconds = 600;
  ShipOptions how;
};

void add_ship_options(Command* verb, ShipVerbOptions* options);
// Listens, and waits for the replicas that are to be there.
Result<std::shared_ptr<Shipper>> open_shipper(const Context& context, std::shared_ptr<Store> store,
                                              const ShipVerbOptions& options, const Keys& keys);
// What became of the newest version; its warnings are added to the publisher's.
ShipReport settle_ship(Shipper& shipper, PublishReport* report);
nlohmann::ordered_json to_json(const ShipReport& report);
std::string one_line(const ShipReport& report);

}  // namespace deltawire::cli
