// Options that check their values and say which values are valid.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/command.h"
#include "cli/context.h"
#include "cli/metrics.h"
#include "deltawire/chain.h"
#include "deltawire/maintain.h"
#include "deltawire/progress.h"
#include "deltawire/status.h"
#include "deltawire/store.h"
#include "serve/chain_server.h"

namespace deltawire::cli {

// Decimal digits without a sign or a leading zero.
Option* add_whole_number(Command* verb, const std::string& names,
                         std::function<void(uint64_t)> store, const std::string& description,
                         uint64_t least, uint64_t most);
template <class T>
Option* add_whole_number(Command* verb, const std::string& names, T* value,
                         const std::string& description, uint64_t least, uint64_t most) {
  const auto store = [value](uint64_t number) { *value = T(number); };
  return add_whole_number(verb, names, std::function<void(uint64_t)>(store), description, least,
                          most);
}
// A version number; leading zeros are allowed, as in names of objects.
Option* add_version(Command* verb, const std::string& names, std::function<void(uint64_t)> store,
                    const std::string& description);
template <class T>
Option* add_version(Command* verb, const std::string& names, T* value,
                    const std::string& description) {
  const auto store = [value](uint64_t number) { *value = T(number); };
  return add_version(verb, names, std::function<void(uint64_t)>(store), description);
}
// Above `least`, at most `most`.
Option* add_share(Command* verb, const std::string& names, double* value,
                  const std::string& description, double least, double most);
// Seconds, with a fraction if need be, from `least` to `most`.
Option* add_seconds(Command* verb, const std::string& names, double* value,
                    const std::string& description, double least, double most);
// At least 1: "1000000", "256MiB", "1GB".
Option* add_bytes(Command* verb, const std::string& names, uint64_t* value,
                  const std::string& description);
// One of a few words.
Option* add_choice(Command* verb, const std::string& names, std::string* value,
                   const std::string& description, const std::vector<std::string>& words);
// --codec: one of `words`, which choose a codec for each tensor, or a codec.
Option* add_codec(Command* verb, std::string* value, const std::string& description,
                  std::vector<std::string> words);

// Options that many verbs share: stores, keys, logs, metrics.

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

struct ServerArguments {
  std::string address = {};  // empty: no server
  TlsFiles tls = {};
};

// `flag`: the option for the address. After add_store_options(): --token-file is the server's too.
void add_server_options(Command* verb, const std::string& flag, const std::string& description,
                        ServerArguments* arguments);
// Raises the limit of open files: a server has one for each connection and each relayed object.
void allow_all_files();
Result<std::unique_ptr<ChainServer>> start_server(std::shared_ptr<Store> store,
                                                  const ServerArguments& arguments,
                                                  const std::string& token_file,
                                                  std::optional<PageOptions> page = {});

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
