#include "cli/store_options.h"

#include <deltawire_faults.h>

#include "cli/options.h"
#include "cli/units.h"
#include "store/open_store.h"

namespace deltawire::cli {
namespace {

uint64_t parse_rate(const std::string& option, std::string text) {
  if (text.ends_with("/s")) text.resize(text.size() - 2);
  const Result<uint64_t> rate = parse_bytes(text);
  if (!rate.ok()) refuse_value(option, rate.status().message());
  if (*rate == 0) refuse_value(option, "must be more than 0");
  return *rate;
}

}  // namespace

void add_store_options(Command* verb, StoreOptions* options, const std::string& prefix,
                       const std::string& heading) {
  const std::string flag = "--" + prefix;
  verb->add_option(flag + "endpoint", options->endpoint, "S3: https://HOST:PORT (default: AWS)")
      ->group(heading);
  verb->add_option(flag + "region", options->region,
                   "S3: region (default: AWS_REGION, then us-east-1)")
      ->group(heading);
  verb->add_option(flag + "profile", options->profile,
                   "S3: whose keys in ~/.aws (default: AWS_PROFILE, or keys of the environment)")
      ->group(heading);
  verb->add_flag(flag + "virtual-host", options->virtual_host,
                 "S3: the bucket is part of the host's name, not of the path")
      ->group(heading);
  verb->add_option(flag + "ca-file", options->ca_file,
                   "S3: also trust the certificates in this PEM file")
      ->group(heading);
  add_whole_number(verb, flag + "connections", &options->connections,
                   "S3: connections at once, 1 to 1024 (default 16)", 1, 1024)
      ->group(heading);
  add_seconds(verb, flag + "timeout", &options->call_timeout_seconds,
              "S3: limit of one request (default 60)", 0.001, 86400)
      ->group(heading);
  verb->add_option(flag + "secret-file", options->secret_file,
                   "ship://: a file whose first line is the publisher's secret")
      ->group(heading);
  verb->add_option(flag + "behind", options->behind,
                   "ship://: a store with the same chain, read when the publisher is away")
      ->group(heading);
  add_whole_number(verb, flag + "retries", &options->retries,
                   "further attempts after a failure that may pass (default 6)", 0, 1000)
      ->group(heading);
  verb->add_parsed(
          flag + "rate-limit",
          [options, flag](const std::string& text) {
            options->max_bytes_per_second = parse_rate(flag + "rate-limit", text);
          },
          "bytes per second, up and down together: 100MB, 10MiB (default: no limit)")
      ->group(heading);
  verb->add_parsed(
          flag + "inject",
          [options](const std::string& text) { options->wrap = inject_faults(text); },
          "faults to test with, e.g. unavailable:p=0.1:seed=3; see docs/testing.md")
      ->group(DELTAWIRE_FAULTS ? heading : "");  // no group: not shown
}

}  // namespace deltawire::cli
