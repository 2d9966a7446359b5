// --metrics-port and --metrics-address: numbers for Prometheus while a verb runs.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "cli/command.h"
#include "cli/metrics/server.h"

namespace deltawire::cli {

struct MetricsOptions {
  std::optional<uint16_t> port;  // none: not served
  std::string address = "127.0.0.1";
};

Option* add_metrics_options(Command* verb, MetricsOptions* options);

// Serves metrics() until the result is destroyed; null when nobody asked. Logs where
// ("metrics.listening").
Result<std::unique_ptr<MetricsServer>> start_metrics(const MetricsOptions& options);

}  // namespace deltawire::cli
