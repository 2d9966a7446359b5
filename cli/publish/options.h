// What `publish` is told, with and without --watch.
#pragma once

#include <filesystem>
#include <string>

#include "cli/context.h"
#include "cli/log_options.h"
#include "cli/metrics_options.h"
#include "cli/publish/ship_options.h"
#include "deltawire/publisher.h"

namespace deltawire::cli {

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

}  // namespace deltawire::cli
