#include "cli/publish/ship_options.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/log.h"
#include "cli/options.h"
#include "cli/units.h"

namespace deltawire::cli {
namespace {

constexpr const char* kShipGroup = "Ship";
constexpr double kLookSeconds = 0.2;

// In short turns, so that Ctrl-C is heard.
Status wait_for_replicas(Shipper& shipper, unsigned count, double seconds) {
  const double end = now_seconds() + seconds;
  while (true) {
    Status status = shipper.wait_for(count, kLookSeconds);
    if (status.ok() || now_seconds() >= end) return status;
    if (was_interrupted()) return cancelled("stopped on request");
  }
}

}  // namespace

void add_ship_options(Command* verb, ShipVerbOptions* options) {
  auto* const ship =
      verb->add_option("--ship", options->address,
                       "HOST:PORT to listen on: versions also go straight to replicas that follow "
                       "ship://HOST:PORT")
          ->group(kShipGroup);
  verb->add_option("--ship-secret-file", options->secret_file,
                   "a file whose first line every replica must know; without it only this host "
                   "may join")
      ->group(kShipGroup)
      ->needs(ship);
  verb->add_flag("--ship-open", options->how.open_to_all,
                 "without a secret: let everybody join who reaches the port")
      ->group(kShipGroup)
      ->needs(ship);
  verb->add_option("--ship-host", options->how.host,
                   "by which replicas reach this host (default: as in --ship)")
      ->group(kShipGroup)
      ->needs(ship);
  add_bytes(verb, "--ship-buffer", &options->how.buffer_bytes,
            "what goes at once; twice as much is held (default 512MiB)")
      ->group(kShipGroup)
      ->needs(ship);
  add_seconds(verb, "--ship-timeout", &options->how.timeout_seconds,
              "limit of a buffer, and of a replica to hold the version (default 60)", 0.1, 86400)
      ->group(kShipGroup)
      ->needs(ship);
  add_whole_number(verb, "--ship-wait", &options->wait,
                   "replicas that must follow before the first version", 0, 4096)
      ->group(kShipGroup)
      ->needs(ship);
  add_whole_number(verb, "--ship-keep", &options->how.keep_versions,
                   "collect garbage after each version: keep so many (default: all)", 0,
                   9'999'999'999)
      ->group(kShipGroup)
      ->needs(ship);
}

Result<std::shared_ptr<Shipper>> open_shipper(const Context& context, std::shared_ptr<Store> store,
                                              const ShipVerbOptions& options, const Keys& keys) {
  ShipOptions how = options.how;
  how.address = options.address;
  how.keys = keys;
  DW_ASSIGN_OR_RETURN(how.secret, read_ship_secret(options.secret_file));
  DW_ASSIGN_OR_RETURN(std::shared_ptr<Shipper> shipper, Shipper::listen(std::move(store), how));
  log_event(LogLevel::kInfo, "ship.listening", {{"address", shipper->address()}});
  static_cast<void>(context);
  if (options.wait != 0) {
    DW_RETURN_IF_ERROR(wait_for_replicas(*shipper, options.wait, options.wait_seconds));
  }
  return shipper;
}

ShipReport settle_ship(Shipper& shipper, PublishReport* report) {
  ShipReport shipped = shipper.settle();
  report->warnings.insert(report->warnings.end(), shipped.warnings.begin(), shipped.warnings.end());
  return shipped;
}

nlohmann::ordered_json to_json(const ShipReport& report) {
  nlohmann::ordered_json json = {{"version", nullptr},
                                 {"carrier", report.carrier},
                                 {"epoch", report.epoch},
                                 {"bytes", report.bytes},
                                 {"replicas", nlohmann::ordered_json::array()},
                                 {"phases", nlohmann::ordered_json::array()}};
  if (report.version) json["version"] = *report.version;
  for (const Shipped& one : report.replicas) {
    nlohmann::ordered_json entry = {
        {"name", one.name},   {"from", one.from},       {"rank", nullptr},   {"version", nullptr},
        {"bytes", one.bytes}, {"seconds", one.seconds}, {"error", one.error}};
    if (one.rank) entry["rank"] = *one.rank;
    if (one.version) entry["version"] = *one.version;
    json["replicas"].push_back(std::move(entry));
  }
  for (const Phase& phase : report.phases) {
    json["phases"].push_back({{"name", phase.name}, {"begin", phase.begin}, {"end", phase.end}});
  }
  return json;
}

std::string one_line(const ShipReport& report) {
  const auto held = std::count_if(report.replicas.begin(), report.replicas.end(),
                                  [](const Shipped& one) { return one.error.empty(); });
  return fmt::format("held by {} of {}, {} sent", held, plural(report.replicas.size(), "replica"),
                     human_bytes(double(report.bytes)));
}

}  // namespace deltawire::cli
