// Options and reports of `publish`, with and without --watch.
#pragma once

#include <nlohmann/json.hpp>

#include <filesystem>
#include <string>

#include "cli/command.h"
#include "cli/context.h"
#include "cli/options.h"
#include "deltawire/chain.h"
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
  uint64_t wait_for = 0;  // replicas, after each version
  double wait_timeout = 60;
  std::shared_ptr<Store> opened_store;  // by open_publisher()

  // Completes the options after parsing.
  Status complete(const Context& context);
  // InvalidArgument where CKPT and STORE are given in the wrong order.
  Status check_order() const;
  // The folder of this run's snapshot; after complete().
  std::filesystem::path snapshot_of(const std::string& run) const;
};

Result<Publisher> open_publisher(PublishVerbOptions* options);

// Implements --wait-for; none without it or if the store fails. Adds a warning for each replica
// that does not hold the version in time; the version is committed in any case.
std::optional<HoldersReport> wait_for_holders(const PublishVerbOptions& options,
                                              PublishReport* report);
Json to_json(const HoldersReport& report);
std::string one_line(const HoldersReport& report);

// Publishes every checkpoint that appears in a folder, until interrupted.
int watch(const Context& context, PublishVerbOptions& options);

inline constexpr std::string_view kFloat32Hint =
    "most weights are float32, and most of them changed; if engines serve bfloat16, save the "
    "checkpoints in bfloat16: far fewer change";

Json to_json(const PublishReport& report);
void say_report(const Context& context, const PublishReport& report);
// A one-line report, for --watch.
std::string one_line(const PublishReport& report);

}  // namespace deltawire::cli
