// Checks of a store, its chain and engines.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "base/clock.h"
#include "base/json.h"
#include "cli/doctor/checks.h"
#include "cli/next_step.h"
#include "cli/table.h"
#include "deltawire/chain.h"
#include "http/http_client.h"
#include "notify/notifier.h"
#include "store/probe.h"

namespace deltawire::cli::doctor {
namespace {

constexpr int64_t kMostSkewSeconds = 30;
constexpr size_t kMostNames = 5;
constexpr char kOneWriter[] = "publish from one process at a time, with --single-writer";
constexpr char kSetClock[] =
    "set the clock that is wrong: timedatectl set-ntp true, or chronyc makestep; heartbeats and "
    "leases go by the store's, and S3 refuses requests of 15 minutes ago";

// Checks whether the store answers, and how fast. False if further checks are useless.
bool check_reachable(Checks* checks, Store& store) {
  double best = 0;
  for (int i = 0; i < 4; ++i) {  // the first one connects
    const double start = steady_seconds();
    const auto listed = store.list("", "", 1);
    if (!listed.ok()) {
      const bool is_silent = listed.status().code() == Code::kUnavailable;
      checks->fail("store", listed.status(),
                   is_silent ? "is it up? check host, port, proxy and firewall" : "");
      return false;
    }
    const double took = steady_seconds() - start;
    best = i <= 1 ? took : std::min(best, took);
  }
  checks->ok("store", fmt::format("{}: a request takes {:.1f} ms", store.url(), best * 1000),
             {{"url", store.url()}, {"round_trip_seconds", best}});
  return true;
}

void check_skew(Checks* checks, int64_t ahead) {
  const std::string text =
      ahead == 0 ? "shows the same time as this machine's"
                 : fmt::format("{} {} this machine's", plural(uint64_t(std::abs(ahead)), "second"),
                               ahead > 0 ? "ahead of" : "behind");
  const Json values = {{"store_ahead_seconds", ahead}};
  checks->judge(std::abs(ahead) <= kMostSkewSeconds, "store clock", text, kSetClock, values);
}

// The next step for a failed check; empty for the general one of its code.
std::string next_of(const ProbeStep& step) {
  if (step.status.code() == Code::kCorruption) {
    return "bytes change on the way: check the server, its disks, and proxies";
  }
  if (step.what == "put if absent" && step.status.code() == Code::kUnsupported) return kOneWriter;
  if (step.what == "list" && step.status.code() == Code::kUnavailable) {
    return "publish with --hook-before-commit CMD that waits for the parts: docs/operations.md";
  }
  std::string next = next_step(step.status, "doctor");
  if (step.what == "write") next += "; for a replica --read-only is enough";
  if (step.what == "delete") next += "; gc needs the right to delete, a publisher does without";
  return next;
}

void check_rights(Checks* checks, Store& store) {
  const ProbeReport probe = probe_store(store, was_interrupted);
  for (const ProbeStep& step : probe.steps) {
    if (step.status.ok() && step.what == "transfer") {
      const double up = double(kProbeBytes) / probe.put_seconds;
      const double down = double(kProbeBytes) / probe.get_seconds;
      checks->ok("transfer",
                 fmt::format("{} up at {}/s, down at {}/s; ranges are right",
                             human_bytes(double(kProbeBytes)), human_bytes(up), human_bytes(down)),
                 {{"put_bytes_per_second", up}, {"get_bytes_per_second", down}});
    } else if (step.status.ok()) {
      checks->ok(step.what, step.detail);
    } else {
      checks->fail(step.what, step.status, next_of(step));
    }
  }
  if (!probe.put_if_absent) {
    checks->warn("put if absent", store.url() + ": has no conditional put", kOneWriter);
  }
  if (probe.clock_ahead) check_skew(checks, *probe.clock_ahead);
}

// Anyone who can write to the store chooses these names, so few are shown, and none is long.
std::string some_names(const std::vector<std::string>& names) {
  const size_t count = std::min(names.size(), kMostNames);
  std::string text =
      fmt::format("{}", fmt::join(names.begin(), names.begin() + ptrdiff_t(count), ", "));
  return names.size() > count ? fmt::format("{} and {} more", text, names.size() - count) : text;
}

Status check_replicas(Checks* checks, const Chain& chain) {
  DW_ASSIGN_OR_RETURN(const std::vector<ListedHeartbeat> beats, chain.replicas());
  std::vector<std::string> gone, failing, unreadable;
  for (const ListedHeartbeat& listed : beats) {
    if (!listed.heartbeat.ok()) {
      unreadable.push_back(shown_replica(listed.object.name));
    } else if (listed.is_gone()) {
      gone.push_back(shown_replica(listed.heartbeat->name));
    } else if (!listed.heartbeat->error.empty()) {
      failing.push_back(shown_replica(listed.heartbeat->name));
    }
  }
  std::string text = plural(beats.size(), "replica");
  for (const auto& [names, what] :
       {std::pair(&gone, "gone"), {&failing, "failing"}, {&unreadable, "unreadable"}}) {
    if (!names->empty()) {
      text += fmt::format("; {} {}: {}", names->size(), what, some_names(*names));
    }
  }
  const Json values = {
      {"replicas", beats.size()}, {"gone", gone}, {"failing", failing}, {"unreadable", unreadable}};
  checks->judge(gone.empty() && failing.empty() && unreadable.empty(), "replicas", text,
                "deltawire status STORE says more; start them again, or remove what is left of one "
                "with status STORE --forget NAME",
                values);
  return {};
}

Status check_chain(Checks* checks, const std::shared_ptr<Store>& store) {
  const Result<Chain> chain = Chain::open(store);
  if (chain.status().code() == Code::kNotFound) {
    DW_ASSIGN_OR_RETURN(const auto objects, store->list("", "", 1));
    if (objects.empty()) {
      checks->ok("chain", "none yet: the store is empty");
    } else {
      checks->warn(
          "chain",
          fmt::format("none, though there are objects, such as {}", shown(objects[0].name)),
          "check path or prefix; publish takes an empty place");
    }
    return {};
  }
  DW_RETURN_IF_ERROR(Status(chain.status()));
  DW_ASSIGN_OR_RETURN(const std::optional<uint64_t> head, chain->head());
  if (!head) {
    checks->ok("chain", fmt::format("run {}, without a version yet", chain->run()));
  } else {
    DW_ASSIGN_OR_RETURN(const VersionRecord record, chain->version(*head));
    const int64_t age = std::max<int64_t>(0, unix_seconds() - parse_utc(record.manifest.created));
    checks->ok("chain",
               fmt::format("head {}, run {}, published {}", *head, chain->run(), age_text(age)),
               {{"run", chain->run()}, {"head", *head}, {"age_seconds", age}});
  }
  return check_replicas(checks, *chain);
}

std::string text_in(const nlohmann::json& answer, const char* key) {
  const auto found = answer.is_object() ? answer.find(key) : answer.end();
  if (!answer.is_object() || found == answer.end() || found->is_null()) return {};
  return printable(found->is_string() ? found->get<std::string>() : json_text(*found));
}

// Accepts any HTTP status: a server that is not ready answers 503.
class EngineAsker {
 public:
  EngineAsker(std::string url, Secret key, double timeout_seconds)
      : url_(std::move(url)), key_(std::move(key)), timeout_seconds_(timeout_seconds) {}

  Result<HttpAnswer> get(std::string_view path) {
    HttpRequest request;
    request.url = url_ + std::string(path);
    if (!key_.empty()) request.headers = {"Authorization: Bearer " + key_.reveal()};
    request.use_proxy = false;  // as for all calls of engines
    request.timeout_seconds = timeout_seconds_;
    request.cancelled = was_interrupted;
    Result<HttpAnswer> answer = http_.perform(request);
    if (!answer.ok()) return Status(answer.status()).at(url_);
    answer->text = hide_secret(std::move(answer->text), key_);
    return answer;
  }

 private:
  const std::string url_;
  const Secret key_;
  const double timeout_seconds_;
  HttpClient http_;
};

// A server that does not follow a chain itself: `follow --notify` reloads it.
void check_plain_engine(Checks* checks, const std::string& url, EngineAsker* asker) {
  for (const auto& [kind, path, key] :
       {std::tuple("sglang", "/model_info", "weight_version"), {"vllm", "/version", "version"}}) {
    const Result<HttpAnswer> answer = asker->get(path);
    if (!answer.ok()) return checks->fail("engine", answer.status());
    const std::string value = answer->ok() ? text_in(parse_json(answer->text), key) : "";
    if (value.empty()) continue;
    return checks->warn(
        "engine", fmt::format("{}: {}, {} {}; it follows no chain", url, kind, key, value),
        fmt::format("deltawire follow STORE LOCAL --notify {0}={1} reloads it; or let the server "
                    "follow by itself: docs/{0}.md",
                    kind, url));
  }
  checks->fail("engine", unsupported(url + ": answers, but not as vLLM or SGLang do"),
               "check host and port");
}

}  // namespace

void check_store(Checks* checks, const StoreTarget& target) {
  const auto store = open_store(target.url, target.options);
  if (!store.ok()) return checks->fail("store", store.status());
  // A probe would make the folder.
  const std::string folder =
      is_store_url(target.url) ? (*store)->local_folder() : std::string(target.url);
  std::error_code error;
  if (!folder.empty() && !std::filesystem::exists(folder, error)) {
    if (error) return checks->fail("store", io_error(folder + ": " + error.message()));
    return checks->warn("store", folder + ": there is no such folder",
                        "mount it, or check the path; the first deltawire publish makes it");
  }
  if (!check_reachable(checks, **store)) return;
  if (target.url.starts_with("http://") || target.url.starts_with("https://")) {
    checks->ok("write", "a store over HTTP can only be read; publish to the one that is served");
    const int64_t before = unix_seconds();
    if (const auto now = (*store)->clock(); now.ok()) check_skew(checks, *now - before);
  } else if (target.read_only) {
    checks->ok("write", "not tried: --read-only");
  } else {
    check_rights(checks, **store);
  }
  if (was_interrupted()) return;
  if (const Status status = check_chain(checks, *store); !status.ok()) {
    checks->fail("chain", status);
  }
}

void check_engine(Checks* checks, const std::string& typed, double timeout_seconds) {
  EngineOptions options;
  if (const char* key = std::getenv("DELTAWIRE_ENGINE_API_KEY")) options.api_key = Secret(key);
  // Checks the URL and the key without a request.
  if (const auto engine = make_engine("vllm=" + typed, options); !engine.ok()) {
    return checks->fail("engine", engine.status());
  }
  const std::string url = check_engine_url(typed).value();
  EngineAsker asker(url, options.api_key, timeout_seconds);
  const Result<HttpAnswer> answer = asker.get("/deltawire/ready");
  if (!answer.ok()) {
    return checks->fail("engine", answer.status(), "is the server up? check host and port");
  }
  if (answer->status == 401 || answer->status == 403) {
    return checks->fail(
        "engine",
        invalid_argument(fmt::format("{}: refuses the key (HTTP {})", url, answer->status)),
        "set DELTAWIRE_ENGINE_API_KEY to what the server's --api-key is");
  }
  const nlohmann::json told = parse_json(answer->text);
  if (!told.is_object() || !told.contains("ready")) {
    return check_plain_engine(checks, url, &asker);
  }
  const std::string version = text_in(told, "version"), why = text_in(told, "error");
  const std::string serves =
      version.empty() ? "serves no version yet"
                      : fmt::format("serves version {} of run {}", version, text_in(told, "run"));
  if (told["ready"] == true) return checks->ok("engine", fmt::format("{}: {}", url, serves));
  checks->warn("engine", fmt::format("{}: {}; not ready: {}", url, serves, why),
               "wait, or look at the server's log and /deltawire/status: docs/engines.md");
}

}  // namespace deltawire::cli::doctor
