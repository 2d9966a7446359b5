#include "cli/options.h"

#include <deltawire_faults.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>
#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "base/log.h"
#include "base/metrics.h"
#include "cli/table.h"
#include "cli/verbs.h"
#include "codec/codec.h"
#include "deltawire/version.h"
#include "tensor/text.h"
#if DELTAWIRE_FAULTS
#include "faults/faulty_store.h"
#endif

namespace deltawire::cli {
namespace {

constexpr uint64_t kMostVersion = 9'999'999'999;  // object names have ten digits

[[noreturn]] void refuse(const std::string& names, const std::string& expected,
                         const std::string& got) {
  // "-j,--threads": the long name says more.
  const std::string name = names.substr(names.rfind(',') + 1);
  refuse_value(name, fmt::format("expected {}, got {}", expected, quote(got)));
}

bool parse_decimal(const std::string& text, uint64_t* value) {
  const bool octal_looking = text.size() > 1 && text[0] == '0';
  return !octal_looking && parse_number(text, value);
}

bool parse_real(const std::string& text, double* value) {
  if (text.empty() || text.find_first_not_of("0123456789.eE+-") != text.npos) return false;
  char* end = nullptr;
  *value = std::strtod(text.c_str(), &end);
  return *end == '\0' && std::isfinite(*value);
}

}  // namespace

Option* add_whole_number(Command* verb, const std::string& names,
                         std::function<void(uint64_t)> store, const std::string& description,
                         uint64_t least, uint64_t most) {
  const auto parse = [=](const std::string& text) {
    uint64_t number = 0;
    if (!parse_decimal(text, &number) || number < least || number > most) {
      refuse(names, fmt::format("a whole number from {} to {}", least, most), text);
    }
    store(number);
  };
  return verb->add_parsed(names, parse, description)->type_name("N");
}

Option* add_version(Command* verb, const std::string& names, std::function<void(uint64_t)> store,
                    const std::string& description) {
  const auto parse = [=](const std::string& text) {
    uint64_t number = 0;
    if (!parse_number(text, &number) || number > kMostVersion) {
      refuse(names, fmt::format("the number of a version, 0 to {}", kMostVersion), text);
    }
    store(number);
  };
  return verb->add_parsed(names, parse, description)->type_name("N");
}

Option* add_share(Command* verb, const std::string& names, double* value,
                  const std::string& description, double least, double most) {
  const auto parse = [=](const std::string& text) {
    if (!parse_real(text, value) || !(*value > least) || *value > most) {
      refuse(names, fmt::format("a number above {} and at most {}", least, most), text);
    }
  };
  return verb->add_parsed(names, parse, description)->type_name("X");
}

Option* add_seconds(Command* verb, const std::string& names, double* value,
                    const std::string& description, double least, double most) {
  const auto parse = [=](const std::string& text) {
    double seconds = 0;
    if (!parse_real(text, &seconds) || seconds < least || seconds > most) {
      refuse(names, fmt::format("seconds, {} to {}", least, most), text);
    }
    *value = seconds;
  };
  return verb->add_parsed(names, parse, description)->type_name("SECONDS");
}

Option* add_bytes(Command* verb, const std::string& names, uint64_t* value,
                  const std::string& description) {
  const auto parse = [=](const std::string& text) {
    const Result<uint64_t> bytes = parse_bytes(text);
    if (!bytes.ok() || *bytes == 0) {
      refuse(names, "a size of at least 1 byte, such as 1000000, 256MiB or 1GB", text);
    }
    *value = *bytes;
  };
  return verb->add_parsed(names, parse, description)->type_name("SIZE");
}

Option* add_choice(Command* verb, const std::string& names, std::string* value,
                   const std::string& description, const std::vector<std::string>& words) {
  const auto parse = [=](const std::string& text) {
    if (std::find(words.begin(), words.end(), text) == words.end()) {
      refuse(names, fmt::format("one of {}", fmt::join(words, ", ")), text);
    }
    *value = text;
  };
  return verb->add_parsed(names, parse, description)->type_name("NAME");
}

Option* add_codec(Command* verb, std::string* value, const std::string& description,
                  std::vector<std::string> words) {
  std::vector<std::string_view> codecs;
  for (const Codec* codec : all_codecs()) codecs.push_back(codec->name());
  words.insert(words.end(), codecs.begin(), codecs.end());
  return add_choice(verb, "--codec", value,
                    fmt::format("{}; or one of {}", description, fmt::join(codecs, ", ")), words);
}

Command* make_verb(Command& app, Context& context, const std::string& name,
                   const std::string& description, const std::string& examples) {
  Command* verb = app.add_verb(name, description);
  verb->set_footer("Examples:\n" + examples);
  verb->add_flag("--json", context.json, "print one JSON object on stdout, and nothing else");
  verb->add_flag("-q,--quiet", context.quiet, "print no report and no progress");
  return verb;
}

void add_threads(Command* verb, Context& context) {
  add_whole_number(verb, "-j,--threads", &context.threads,
                   "threads to use, 1 to 1024 (default: one per core)", 1, 1024);
}

namespace {

uint64_t parse_rate(const std::string& option, std::string text) {
  if (text.ends_with("/s")) text.resize(text.size() - 2);
  const Result<uint64_t> rate = parse_bytes(text);
  if (!rate.ok()) refuse_value(option, rate.status().message());
  if (*rate == 0) refuse_value(option, "must be more than 0");
  return *rate;
}

}  // namespace

void add_store_options(Command* verb, StoreOptions* options, const std::string& prefix) {
  const std::string flag = "--" + prefix;
  const auto rate = [options, flag](const std::string& text) {
    options->max_bytes_per_second = parse_rate(flag + "rate-limit", text);
  };
  const std::initializer_list<Option*> added = {
      verb->add_option(flag + "endpoint", options->endpoint, "S3: https://HOST:PORT (default: AWS)")
          ->type_name("URL"),
      verb->add_option(flag + "region", options->region,
                       "S3: region (default: AWS_REGION, then us-east-1)")
          ->type_name("NAME"),
      verb->add_option(flag + "profile", options->profile,
                       "S3: profile in ~/.aws (default: AWS_PROFILE, or the environment's keys)")
          ->type_name("NAME"),
      verb->add_flag(flag + "virtual-host", options->virtual_host,
                     "S3: the bucket is part of the host's name"),
      verb->add_option(flag + "ca-file", options->ca_file,
                       "S3, https://: also trust the certificates in this PEM file")
          ->type_name("FILE"),
      add_whole_number(verb, flag + "connections", &options->connections,
                       "S3, http://: connections at once, 1 to 1024 (default 16)", 1, 1024),
      add_seconds(verb, flag + "timeout", &options->call_timeout_seconds,
                  "S3, http://: limit of one request (default 60)", 0.001, 86400),
      verb->add_option(flag + "token-file", options->token_file,
                       "http://, https://: a file whose first line is the bearer token")
          ->type_name("FILE"),
      verb->add_option(flag + "client-cert", options->client_cert,
                       "https://: certificate and private key of this client, PEM")
          ->type_name("FILE"),
      add_whole_number(verb, flag + "retries", &options->retries,
                       "attempts after a temporary failure (default 6)", 0, 1000),
      verb->add_parsed(
              flag + "rate-limit", rate,
              "limit in bytes per second, up and down together: 100MB, 10MiB (default: none)")
          ->type_name("SIZE"),
  };
  for (Option* const option : added) option->group("Store");
#if DELTAWIRE_FAULTS
  const auto inject = [options](const std::string& text) { options->wrap = inject_faults(text); };
  verb->add_parsed(flag + "inject", inject,
                   "faults to test with, e.g. unavailable:p=0.1:seed=3; see docs/testing.md")
      ->type_name("FAULTS")
      ->group("Store");
#endif
}

void add_server_options(Command* verb, const std::string& flag, const std::string& description,
                        ServerArguments* arguments) {
  const std::initializer_list<Option*> added = {
      verb->add_option(flag, arguments->address, description)->type_name("HOST:PORT"),
      verb->option("--token-file")
          ->describe("a file whose first line is the bearer token: clients must send it, and it "
                     "is sent to http:// and https:// stores"),
      verb->add_option("--tls-cert", arguments->tls.certificate, "certificate of this server, PEM")
          ->type_name("FILE"),
      verb->add_option("--tls-key", arguments->tls.key, "its private key, PEM")->type_name("FILE"),
      verb->add_option("--client-ca", arguments->tls.client_ca,
                       "accept only clients with a certificate of this authority, PEM")
          ->type_name("FILE"),
  };
  for (Option* const option : added) option->group("Server");
}

void allow_all_files() {
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) != 0) return;
  files.rlim_cur = files.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &files);
}

Result<std::unique_ptr<ChainServer>> start_server(std::shared_ptr<Store> store,
                                                  const ServerArguments& arguments,
                                                  const std::string& token_file,
                                                  std::optional<PageOptions> page) {
  ServeOptions options;
  options.page = std::move(page);
  options.address = arguments.address;
  DW_ASSIGN_OR_RETURN(options.token, read_secret(token_file));
  const TlsFiles& tls = arguments.tls;
  if (tls.certificate.empty() != tls.key.empty()) {
    return invalid_argument("--tls-cert and --tls-key go together");
  }
  if (!tls.client_ca.empty() && tls.certificate.empty()) {
    return invalid_argument("--client-ca needs --tls-cert and --tls-key");
  }
  if (!tls.certificate.empty()) options.tls = tls;
  return ChainServer::start(std::move(store), std::move(options));
}

namespace {

// One write per line, so that the lines of processes that share stderr do not mix.
void write_line(std::string line) {
  line.push_back('\n');
  size_t done = 0;
  while (done < line.size()) {
    const ssize_t n = ::write(STDERR_FILENO, line.data() + done, line.size() - done);
    if (n <= 0) return;  // stderr is closed; continue
    done += size_t(n);
  }
}

}  // namespace

void add_log_options(Command* verb, LogOptions* options, LogLevel usual) {
  options->level = log_level_name(usual);
  add_choice(verb, "--log-level", &options->level,
             "events on stderr from this level up: debug, info, warning, error or off (default "
             "info of follow and mirror, else warning)",
             {"debug", "info", "warning", "error", "off"})
      ->type_name("LEVEL")
      ->group("Log");
  add_choice(verb, "--log-format", &options->format, "text (default) or json: one object per line",
             {"text", "json"})
      ->type_name("FORMAT")
      ->group("Log");
}

void start_log(const LogOptions& options) {
  const bool clear_bar = ::isatty(STDERR_FILENO) != 0;
  const auto format = options.format == "json" ? format_log_json : format_log_text;
  set_log_sink(*parse_log_level(options.level), [format, clear_bar](const LogRecord& record) {
    write_line((clear_bar ? "\r\033[K" : "") + format(record));
  });
}

Option* add_metrics_options(Command* verb, MetricsOptions* options) {
  Option* const port =
      add_whole_number(verb, "--metrics-port", &options->port,
                       "serve GET /metrics for Prometheus on this port (0: any free one)", 0, 65535)
          ->type_name("PORT")
          ->group("Metrics");
  verb->add_option("--metrics-address", options->address,
                   "the address to listen on (default 127.0.0.1)")
      ->needs(port)
      ->type_name("ADDRESS")
      ->group("Metrics");
  return port;
}

Result<std::unique_ptr<HttpServer>> start_metrics(const MetricsOptions& options) {
  if (!options.port) return std::unique_ptr<HttpServer>();
  metrics()
      .gauge("deltawire_build_info", "Always 1; the label is the version of deltawire.",
             {{"version", std::string(version())}})
      .set(1);
  DW_ASSIGN_OR_RETURN(auto server, serve_metrics(options.address, *options.port,
                                                 [] { return metrics().render(); }));
  log_event(LogLevel::kInfo, "metrics.listening",
            {{"address", options.address}, {"port", server->port()}});
  return server;
}

void add_key_options(Command* verb, Keys* keys) {
  Option* const sign =
      verb->add_option("--sign-key", keys->sign, "sign what is added with this private key");
  verb->add_option("--trust", keys->trust,
                   "refuse a chain that is not signed by a key in this file");
  // Two options, so that a forgotten --sign-key does not turn signing off.
  verb->add_flag(
          "--change-key", [keys] { keys->change = KeyChange::kNewKey; },
          "allow another key than that of the newest version, or the first signature; needed once")
      ->needs(sign);
  verb->add_flag(
          "--unsigned", [keys] { keys->change = KeyChange::kUnsigned; },
          "stop signing, although the newest version is signed; replicas with --trust stop there")
      ->excludes(sign);
}

void add_work_options(Command* verb, WorkOptions* work, Keys* keys) {
  verb->add_option(
      "--work", work->folder,
      "folder for copies of the model during the work (default: the system's temporary folder)");
  add_key_options(verb, keys);
}

void add_chain_args(Command* verb, ChainArgs* args) {
  verb->add_option("STORE", args->store, "a folder, or s3://BUCKET/PREFIX")->required();
  verb->add_option("--trust", args->trust,
                   "refuse records that are not signed by a key in this file (deltawire keygen)");
  add_store_options(verb, &args->store_options);
}

Result<Chain> open_chain(const ChainArgs& args) {
  DW_ASSIGN_OR_RETURN(auto store, open_store(args.store, args.store_options));
  return Chain::open(std::move(store), {.trust = args.trust});
}

Result<uint64_t> head_of(const Chain& chain) {
  DW_ASSIGN_OR_RETURN(const std::optional<uint64_t> head, chain.head());
  if (!head) return not_found(chain.store().url() + ": nothing was published yet");
  return *head;
}

Json parts_json(const std::vector<PartRef>& parts) {
  Json list = Json::array();
  for (const PartRef& part : parts) {
    list.push_back(
        {{"name", part.name}, {"bytes", part.size_bytes}, {"sha_256", part.sha256.hex()}});
  }
  return list;
}

Result<std::filesystem::path> cache_folder(const std::string& name, const char* option) {
  const char* const cache = std::getenv("XDG_CACHE_HOME");
  if (cache != nullptr && *cache != '\0') return std::filesystem::path(cache) / "deltawire" / name;
  const char* const home = std::getenv("HOME");
  if (home != nullptr && *home != '\0') {
    return std::filesystem::path(home) / ".cache/deltawire" / name;
  }
  return invalid_argument(
      fmt::format("neither XDG_CACHE_HOME nor HOME is set; say {} DIR", option));
}

}  // namespace deltawire::cli
