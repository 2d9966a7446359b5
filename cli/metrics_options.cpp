#include "cli/metrics_options.h"

#include "base/log.h"
#include "base/metrics.h"
#include "cli/options.h"
#include "deltawire/version.h"

namespace deltawire::cli {

Option* add_metrics_options(Command* verb, MetricsOptions* options) {
  Option* const port =
      add_whole_number(verb, "--metrics-port", &options->port,
                       "serve GET /metrics for Prometheus on this port (0: any that is free)", 0,
                       65535)
          ->type_name("PORT");
  verb->add_option("--metrics-address", options->address,
                   "the address to listen on (default 127.0.0.1; 0.0.0.0: all of this machine)")
      ->needs(port)
      ->type_name("ADDRESS");
  return port;
}

Result<std::unique_ptr<MetricsServer>> start_metrics(const MetricsOptions& options) {
  if (!options.port) return std::unique_ptr<MetricsServer>();
  metrics()
      .gauge("deltawire_build_info", "Always 1; the label tells which deltawire this is.",
             {{"version", std::string(version())}})
      .set(1);
  DW_ASSIGN_OR_RETURN(auto server, MetricsServer::start(options.address, *options.port,
                                                        [] { return metrics().render(); }));
  log_event(LogLevel::kInfo, "metrics.listening",
            {{"address", options.address}, {"port", server->port()}});
  return server;
}

}  // namespace deltawire::cli
