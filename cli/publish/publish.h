// What `publish` is told, with and without --watch and --ship, and what it says of a version.
#pragma once

#include <nlohmann/json.hpp>

#include <filesystem>
#include <string>

#include "cli/command.h"
#include "cli/context.h"
#include "cli/options.h"
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
Json to_json(const ShipReport& report);
std::string one_line(const ShipReport& report);

struct PublishVerbOptions {
  std::string checkpoint, store, snapshot;
  std::string mode = "delta";
  bool no_anchors = false;
  Anchors anchors;
  StoreOptions store_options;
  PublishOptions publish;
  LogOptions log;
  // --watch
  bool watch = false, once = false;
  double settle = 2, interval = 1;
  MetricsOptions metrics;
  ShipVerbOptions ship;
  std::shared_ptr<Shipper> shipper;  // once there is one

  // What is left to do after parsing.
  Status complete(const Context& context);
  // InvalidArgument where CKPT and STORE are given in the wrong order.
  Status check_order() const;
  // The folder of this run's snapshot; after complete().
  std::filesystem::path snapshot_of(const std::string& run) const;
};

Result<Publisher> open_publisher(const Context& context, PublishVerbOptions* options);

// Publishes every checkpoint that appears in a folder, until it is told to stop.
int watch(const Context& context, PublishVerbOptions& options);

inline constexpr std::string_view kFloat32Hint =
    "most weights are float32, and most of them changed; if engines serve bfloat16, save the "
    "checkpoints in bfloat16: far fewer change";

Json to_json(const PublishReport& report);
void say_report(const Context& context, const PublishReport& report);
// One line, for those who publish many.
std::string one_line(const PublishReport& report);

}  // namespace deltawire::cli
