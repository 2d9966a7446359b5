// Options that many verbs share, and what is made of them: stores, keys, events, metrics.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "cli/command.h"
#include "cli/context.h"
#include "cli/metrics.h"
#include "deltawire/chain.h"
#include "deltawire/maintain.h"
#include "deltawire/progress.h"
#include "deltawire/status.h"
#include "deltawire/store.h"

namespace deltawire::cli {

// `options` must live until the command line is parsed, and holds the defaults. A verb with a
// second store gives its options a prefix: "dest-".
void add_store_options(Command* verb, StoreOptions* options, const std::string& prefix = "");

struct LogOptions {
  std::string level = "warning", format = "text";
};

// `usual` is the level without --log-level: info for verbs that run on, warning for others.
void add_log_options(Command* verb, LogOptions* options, LogLevel usual = LogLevel::kWarning);

// From now on events go to stderr, one line each, also while a progress bar is drawn there.
void start_log(const LogOptions& options);

struct MetricsOptions {
  std::optional<uint16_t> port;  // none: not served
  std::string address = "127.0.0.1";
};

Option* add_metrics_options(Command* verb, MetricsOptions* options);

// Serves metrics() until the result is destroyed; null when nobody asked. Logs where
// ("metrics.listening").
Result<std::unique_ptr<HttpServer>> start_metrics(const MetricsOptions& options);

// --sign-key, --trust, --change-key and --unsigned of what adds to a chain. `keys` must live until
// the command line is parsed.
void add_key_options(Command* verb, Keys* keys);

// --work, and the options of keys.
void add_work_options(Command* verb, WorkOptions* work, Keys* keys);

struct ChainArgs {
  std::string store, trust;
  StoreOptions store_options;
};

// STORE, --trust and the options of stores. `args` must live until the command line is parsed.
void add_chain_args(Command* verb, ChainArgs* args);
// NotFound when the store holds no run.
Result<Chain> open_chain(const ChainArgs& args);
// The head; NotFound when nothing was published yet.
Result<uint64_t> head_of(const Chain& chain);

// A part of a version, a hop record: {"name", "bytes", "sha_256"}.
Json parts_json(const std::vector<PartRef>& parts);

// Where a work folder lies unless `option` gives it a place: ~/.cache/deltawire/NAME.
Result<std::filesystem::path> cache_folder(const std::string& name, const char* option = "--work");

}  // namespace deltawire::cli
