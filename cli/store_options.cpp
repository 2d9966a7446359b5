#include "cli/store_options.h"

#include <deltawire_faults.h>

#include "cli/options.h"
#include "cli/units.h"
#include "store/inject.h"

namespace deltawire::cli {
namespace {

constexpr const char* kGroup = "Store";

uint64_t parse_rate(std::string text) {
  if (text.ends_with("/s")) text.resize(text.size() - 2);
  const Result<uint64_t> rate = parse_bytes(text);
  if (!rate.ok()) refuse_value("--rate-limit", rate.status().message());
  if (*rate == 0) refuse_value("--rate-limit", "must be more than 0");
  return *rate;
}

}  // namespace

void add_store_options(Command* verb, StoreOptions* options) {
  verb->add_option("--endpoint", options->endpoint, "S3: https://HOST:PORT (default: AWS)")
      ->group(kGroup);
  verb->add_option("--region", options->region, "S3: region (default: AWS_REGION, then us-east-1)")
      ->group(kGroup);
  verb->add_flag("--virtual-host", options->virtual_host,
                 "S3: the bucket is part of the host's name, not of the path")
      ->group(kGroup);
  verb->add_option("--ca-file", options->ca_file,
                   "S3: also trust the certificates in this PEM file")
      ->group(kGroup);
  add_whole_number(verb, "--connections", &options->connections,
                   "S3: connections at once, 1 to 1024 (default 16)", 1, 1024)
      ->group(kGroup);
  add_seconds(verb, "--timeout", &options->call_timeout_seconds,
              "S3: limit of one request (default 60)", 0.001, 86400)
      ->group(kGroup);
  add_whole_number(verb, "--retries", &options->retries,
                   "further attempts after a failure that may pass (default 6)", 0, 1000)
      ->group(kGroup);
  verb->add_parsed(
          "--rate-limit",
          [options](const std::string& text) { options->max_bytes_per_second = parse_rate(text); },
          "bytes per second, up and down together: 100MB, 10MiB (default: no limit)")
      ->group(kGroup);
  verb->add_parsed(
          "--inject", [options](const std::string& text) { options->wrap = inject_faults(text); },
          "faults to test with, e.g. unavailable:p=0.1:seed=3; see docs/testing.md")
      ->group(DELTAWIRE_FAULTS ? kGroup : "");  // no group: not shown
}

}  // namespace deltawire::cli
