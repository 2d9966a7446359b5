#include "cli/bridge/pull_calls.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "base/log.h"
#include "carrier/net/socket.h"
#include "cli/context.h"
#include "cli/options.h"
#include "cli/replica_options.h"
#include "deltawire/replica.h"
#include "notify/http.h"
#include "tensor/text.h"

namespace deltawire::cli {
namespace {

namespace fs = std::filesystem;
// More than an engine has ranks, and fewer than the server's connections: calls that wait must not
// keep /health from being answered.
constexpr size_t kMaxWaiting = 24;
constexpr size_t kMaxBodyBytes = 64 << 10;
constexpr auto kPollTime = std::chrono::milliseconds(100);
// Between two questions whether a version is served: engines log each.
constexpr auto kFirstPause = std::chrono::milliseconds(20),
               kLongestPause = std::chrono::milliseconds(250);
constexpr double kAskSeconds = 5;  // of one question to an engine

struct PullBody {
  std::string local, source;
  uint64_t version = 0;
};

HttpAnswer json_answer(int status, const Json& json) {
  return {status, "application/json", json_text(json, {.replace_bytes = true}) + "\n"};
}

HttpAnswer refuse(int status, const std::string& why) {
  return json_answer(status, {{"success", false}, {"message", why}});
}

// Browsers send it to other sites only with these sites' leave.
bool is_json(std::string content_type) {
  content_type.resize(std::min(content_type.find_first_of("; \t"), content_type.size()));
  std::transform(content_type.begin(), content_type.end(), content_type.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? char(c - 'A' + 'a') : c; });
  return content_type == "application/json";
}

Result<PullBody> parse_pull_body(const HttpMessage& message) {
  if (!is_json(message.content_type)) {
    return invalid_argument("the body must be application/json, not " +
                            quote(message.content_type));
  }
  const nlohmann::json json = parse_json(message.body);
  if (!json.is_object()) return invalid_argument("the body is not a JSON object");
  PullBody body;
  for (const auto& [name, field] :
       {std::pair<const char*, std::string*>("local_checkpoint_dir", &body.local),
        {"source_dir", &body.source}}) {
    const auto found = json.find(name);
    if (found == json.end() || !found->is_string()) {
      return invalid_argument(fmt::format("\"{}\": expected a path", name));
    }
    *field = found->get<std::string>();
    if (field->find('\0') != std::string::npos || !fs::path(*field).is_absolute()) {
      return invalid_argument(
          fmt::format("\"{}\": {}: expected an absolute path", name, quote(*field)));
    }
  }
  const auto version = json.find("target_version");
  if (version == json.end() || !version->is_number_unsigned()) {
    return invalid_argument("\"target_version\": expected a number from 0");
  }
  body.version = version->get<uint64_t>();
  return body;
}

// Unavailable: not yet.
Status ask_engine(const std::string& url, const Identity& wanted) {
  const std::string path = fmt::format("/deltawire/ready?version={}&run={}&manifest={}",
                                       wanted.version, wanted.run, wanted.manifest);
  const EngineOptions options = engine_options({.timeout_seconds = kAskSeconds, .retries = 0});
  const auto reply = EngineClient(url, options).get(path);
  if (!reply.ok()) return Status(reply.status()).at(url);
  if (!reply->ok()) return EngineClient::failure("GET", path, *reply).at(url);
  const nlohmann::json said = parse_json(reply->text);
  const auto text = [&](const char* name) {
    const auto found = said.is_object() ? said.find(name) : said.end();
    return found != said.end() && found->is_string() ? found->get<std::string>() : std::string();
  };
  const nlohmann::json version = said.is_object() ? said.value("version", nlohmann::json()) : said;
  if (!version.is_number_unsigned()) {
    return EngineClient::not_understood("GET", path, *reply, "deltawire's {\"version\": ...}")
        .at(url);
  }
  const Identity served{text("run"), version.get<uint64_t>(), text("manifest")};
  if (reaches(served, wanted)) return {};
  return unavailable(url + ": serves " + to_string(served));
}

// Unavailable: not yet.
Status ask_replica(const fs::path& local, const Identity& wanted) {
  const Result<ReplicaState> state = read_replica_state(local);
  if (!state.ok()) {
    return unavailable(state.status().message() + "; deltawire follow STORE " + local.string() +
                       " makes it one");
  }
  if (state->run != wanted.run) {
    return base_mismatch(local.string() + ": holds " + to_string(*state) +
                         ", and the chain is of run " + wanted.run.substr(0, 8));
  }
  if (!state->patching_to && reaches(*state, wanted)) return {};
  return unavailable(local.string() + ": holds version " + std::to_string(state->version));
}

}  // namespace

void add_listen_options(Command* verb, Option* follow, ListenOptions* options) {
  Option* const listen = verb->add_option("--listen", options->address,
                                          "answer slime's POST /pull_weights here, when the "
                                          "version is imported and served; port 0: any")
                             ->type_name("HOST:PORT")
                             ->needs(follow);
  verb->add_option(
          "--engine", options->engines,
          "with --listen: served by this engine, which follows the chain by itself; may be "
          "repeated (default: held by the replica in the call's local_checkpoint_dir). A "
          "key comes from DELTAWIRE_ENGINE_API_KEY")
      ->type_name("URL")
      ->repeatable()
      ->needs(listen);
  add_seconds(verb, "--listen-timeout", &options->timeout_seconds,
              "with --listen: the time of one call (default 1800)", 0.1, 86400)
      ->needs(listen);
}

PullCalls::PullCalls(const ListenOptions& options, std::string source, OpenChain open_chain)
    : options_(options), source_(std::move(source)), open_chain_(std::move(open_chain)) {}

Result<std::unique_ptr<PullCalls>> PullCalls::start(const ListenOptions& given, std::string source,
                                                    OpenChain open_chain) {
  ListenOptions options = given;
  for (std::string& engine : options.engines) {
    auto url = check_engine_url(engine);
    if (!url.ok()) return std::move(url).status().at("--engine");
    engine = *url;
  }
  auto endpoint = parse_endpoint(options.address);
  if (!endpoint.ok()) return std::move(endpoint).status().at("--listen");
  std::unique_ptr<PullCalls> calls(
      new PullCalls(options, std::move(source), std::move(open_chain)));
  calls->host_ = endpoint->host;
  HttpSettings settings;
  settings.name = "--listen";
  settings.max_body_bytes = kMaxBodyBytes;
  settings.refuse = refuse;
  PullCalls* const raw = calls.get();
  DW_ASSIGN_OR_RETURN(
      calls->server_,
      HttpServer::start(endpoint->host, uint16_t(std::stoul(endpoint->port)), std::move(settings),
                        [raw](const HttpMessage& message) { return raw->answer(message); }));
  return calls;
}

PullCalls::~PullCalls() { end_import(cancelled("the import has ended"), {}); }

std::string PullCalls::url() const {
  return "http://" + endpoint_text(host_, port()) + "/pull_weights";
}

uint64_t PullCalls::begin_look() {
  const std::lock_guard lock(mutex_);
  return num_begun_ = num_calls_;
}

void PullCalls::end_look(uint64_t begun, const Status& status, std::optional<uint64_t> head) {
  const std::lock_guard lock(mutex_);
  num_seen_ = begun;
  status_ = status;
  head_ = head;
  changed_.notify_all();
}

void PullCalls::end_import(const Status& status, std::optional<uint64_t> head) {
  const std::lock_guard lock(mutex_);
  if (num_seen_ == UINT64_MAX) return;
  num_seen_ = UINT64_MAX;
  status_ = status;
  head_ = head;
  failed_ = !status.ok();
  changed_.notify_all();
}

void PullCalls::wait(double seconds) {
  const auto end = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                      std::chrono::duration<double>(seconds));
  std::unique_lock lock(mutex_);
  while (num_calls_ == num_begun_ && !was_interrupted() && Clock::now() < end) {
    changed_.wait_for(lock, std::min<Clock::duration>(kPollTime, end - Clock::now()));
  }
}

HttpAnswer PullCalls::answer(const HttpMessage& message) {
  if (message.path == "/health") {
    const bool reads = message.method == "GET" || message.method == "HEAD";
    if (!reads) return refuse(405, "only GET");
    return json_answer(200, {{"status", "ok"}});
  }
  if (message.path != "/pull_weights") {
    return refuse(404, "there are POST /pull_weights and GET /health");
  }
  if (message.method != "POST") return refuse(405, "only POST");
  const bool may_wait = num_waiting_.fetch_add(1) < kMaxWaiting;
  const Result<uint64_t> version =
      may_wait ? pull(message) : Result<uint64_t>(unavailable("too many calls are waiting"));
  num_waiting_.fetch_sub(1);
  if (version.ok()) {
    log_event(LogLevel::kInfo, "pull_weights.done", {{"version", *version}});
    return json_answer(200, {{"success", true}, {"message", "Success."}, {"version", *version}});
  }
  const Status& status = version.status();
  log_event(LogLevel::kError, "pull_weights.failed", {{"error", status}});
  return json_answer(
      may_wait ? 400 : 503,
      {{"success", false}, {"message", status.to_string()}, {"code", code_name(status.code())}});
}

Result<uint64_t> PullCalls::pull(const HttpMessage& message) {
  const auto end = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                      std::chrono::duration<double>(options_.timeout_seconds));
  DW_ASSIGN_OR_RETURN(const PullBody body, parse_pull_body(message));
  DW_RETURN_IF_ERROR(check_source(body.source));
  DW_RETURN_IF_ERROR(wait_for_import(body.version, end));
  DW_ASSIGN_OR_RETURN(const Chain chain, open_chain_());
  DW_ASSIGN_OR_RETURN(const VersionRecord record, chain.version(body.version));
  DW_RETURN_IF_ERROR(wait_until_served(record.identity(), body.local, end));
  return body.version;
}

// A trainer that writes elsewhere must not be told that its version is served.
Status PullCalls::check_source(const std::string& source) const {
  if (is_store_url(source_)) return {};  // a bucket, mounted there
  std::error_code error;
  const fs::path own = fs::weakly_canonical(fs::absolute(source_, error), error);
  if (fs::weakly_canonical(source, error) == own) return {};
  return invalid_argument("\"source_dir\": " + quote(source) + ": the import reads " +
                          own.string());
}

Status PullCalls::check_open(Clock::time_point end, const std::string& what,
                             const std::string& why) {
  DW_RETURN_IF_ERROR(check_interrupted());
  if (failed_) return status_;
  if (Clock::now() < end) return {};
  return unavailable(fmt::format("{} after {:g} s{}{}", what, options_.timeout_seconds,
                                 why.empty() ? "" : ": ", why));
}

Status PullCalls::wait_for_import(uint64_t version, Clock::time_point end) {
  std::unique_lock lock(mutex_);
  const uint64_t call = ++num_calls_;
  changed_.notify_all();
  while (num_seen_ < call) {
    DW_RETURN_IF_ERROR(
        check_open(end, fmt::format("version {} is not imported", version), "still importing"));
    changed_.wait_for(lock, kPollTime);
  }
  DW_RETURN_IF_ERROR(status_);
  if (head_ == version) return {};
  const std::string at =
      head_ ? "the chain is at version " + std::to_string(*head_) : "nothing is imported yet";
  if (!head_ || *head_ < version) {
    return not_found(fmt::format("{}: holds no complete version {}; {}", source_, version, at));
  }
  return conflict(
      fmt::format("version {} is asked for, and {}: a run that began again needs a "
                  "store of its own",
                  version, at));
}

Status PullCalls::ask_engines(const Identity& wanted) {
  for (const std::string& engine : options_.engines) {
    DW_RETURN_IF_ERROR(ask_engine(engine, wanted));
  }
  return {};
}

Status PullCalls::wait_until_served(const Identity& wanted, const fs::path& local,
                                    Clock::time_point end) {
  for (auto pause = kFirstPause;; pause = std::min(pause * 3 / 2, kLongestPause)) {
    const Status status =
        options_.engines.empty() ? ask_replica(local, wanted) : ask_engines(wanted);
    if (status.code() != Code::kUnavailable) return status;
    std::unique_lock lock(mutex_);
    DW_RETURN_IF_ERROR(
        check_open(end, to_string(wanted) + " is imported, but not served", status.message()));
    changed_.wait_for(lock, pause);
  }
}

}  // namespace deltawire::cli
