#include "serve/api/page_api.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/clock.h"
#include "base/metrics.h"
#include "deltawire/version.h"
#include "serve/api/answers.h"
#include "serve/api/chain_watch.h"
#include "serve/api/page_files.h"

namespace deltawire {
namespace {

constexpr std::string_view kChains = "/api/v1/chains", kFiles = "/page/", kMetrics = "/metrics";
constexpr char kPolicy[] =
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' "
    "data:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'";

std::string_view content_type(std::string_view name) {
  constexpr std::pair<std::string_view, std::string_view> kTypes[] = {
      {".html", "text/html; charset=utf-8"},
      {".js", "text/javascript; charset=utf-8"},
      {".css", "text/css; charset=utf-8"},
      {".svg", "image/svg+xml"},
      {".png", "image/png"},
      {".json", "application/json"}};
  for (const auto& [ending, type] : kTypes) {
    if (name.ends_with(ending)) return type;
  }
  return "text/plain; charset=utf-8";
}

HttpReply file(const HttpCall& call) {
  const std::string_view path = call.path;
  const std::string_view name = path == "/" ? "index.html" : path.substr(kFiles.size());
  for (const PageFile& one : page_files()) {
    if (one.name != name) continue;
    HttpReply reply{.content_type = std::string(content_type(name))};
    reply.headers = {{"ETag", std::string(one.etag)},
                     {"Cache-Control", "no-cache"},
                     {"Content-Security-Policy", kPolicy},
                     {"X-Content-Type-Options", "nosniff"},
                     {"Referrer-Policy", "no-referrer"}};
    if (call.header("If-None-Match") == one.etag) {
      reply.status = 304;
    } else {
      reply.body = one.bytes;
    }
    return reply;
  }
  return refuse(404, "the page has no such file");
}

}  // namespace

PageApi::PageApi(std::shared_ptr<Store> store, const PageOptions& options, double poll_seconds)
    : started_(unix_seconds_now()) {
  std::vector<std::shared_ptr<Store>> stores = {std::move(store)};
  stores.insert(stores.end(), options.more.begin(), options.more.end());
  for (std::shared_ptr<Store>& one : stores) {
    chains_.push_back(std::make_unique<ChainWatch>(std::move(one), std::to_string(chains_.size()),
                                                   options.keys, poll_seconds));
  }
}

PageApi::~PageApi() = default;

void PageApi::end() {
  for (const auto& chain : chains_) chain->end();
}

bool PageApi::has(std::string_view path) {
  return path == "/" || path == kMetrics || path.starts_with(kFiles) || path.starts_with("/api/");
}

bool PageApi::is_public(const HttpCall& call) {
  return call.path == "/" || call.path.starts_with(kFiles);
}

HttpReply PageApi::answer(const HttpCall& call) {
  if (call.method != "GET" && call.method != "HEAD") return refuse(405, "only GET");
  if (is_public(call)) return file(call);
  HttpReply reply = call.path == kMetrics ? metrics() : api(call);
  reply.headers.emplace_back("X-Content-Type-Options", "nosniff");
  return reply;
}

HttpReply PageApi::api(const HttpCall& call) {
  if (call.path == kChains) {
    Json list = Json::array();
    for (const auto& chain : chains_) list.push_back(chain->summary());
    return json_reply(
        200,
        {{"server", {{"version", version()}, {"time", unix_seconds_now()}, {"started", started_}}},
         {"chains", std::move(list)}});
  }
  if (!call.path.starts_with(std::string(kChains) + "/")) {
    return refuse(404, "see " + std::string(kChains));
  }
  const std::string rest = call.path.substr(kChains.size() + 1);
  const size_t slash = rest.find('/');
  uint64_t number = 0;
  if (!parse_number(std::string_view(rest).substr(0, slash), &number) || number >= chains_.size()) {
    return refuse(404, "chain " + rest.substr(0, slash) + ": not served here");
  }
  if (slash == rest.npos) return json_reply(200, chains_[number]->summary());
  return chains_[number]->answer(rest.substr(slash), call);
}

HttpReply PageApi::metrics() {
  Metrics own;  // gone replicas take their numbers along
  own.gauge("deltawire_server_info", "Always 1; the label is the version of the server.",
            {{"version", std::string(version())}})
      .set(1);
  for (const auto& chain : chains_) chain->record(&own);
  return {.content_type = "text/plain; version=0.0.4; charset=utf-8",
          .body = deltawire::metrics().render() + own.render(),
          .headers = {{"Cache-Control", "no-store"}}};
}

void ChainWatch::record(Metrics* to) {
  const std::lock_guard lock(mutex_);
  const auto gauge = [&](const char* name, const char* help, double value,
                         Metrics::Labels labels = {}) {
    labels.insert(labels.begin(), {"chain", id_});
    to->gauge(name, help, labels).set(value);
  };
  gauge("deltawire_chain_info", "Always 1; the label is the store's URL.", 1,
        {{"store", store_->url()}});
  gauge("deltawire_chain_state", "0: nothing is wrong. 1: a warning. 2: an error.",
        health_.state == "ok"        ? 0
        : health_.state == "warning" ? 1
                                     : 2);
  if (head_) {
    const Manifest& m = *head_;
    gauge("deltawire_chain_head_version", "The newest version of the chain.", double(m.version));
    gauge("deltawire_chain_head_timestamp_seconds",
          "When the newest version was published, seconds since 1970.",
          double(head_created().value_or(0)));
    gauge("deltawire_chain_head_bytes", "Bytes of parts of the newest version.",
          double(m.part_bytes()));
    gauge("deltawire_chain_head_publish_seconds", "How long publishing the newest version took.",
          double(m.milliseconds) / 1000);
    gauge("deltawire_chain_head_density",
          "Share of elements that the newest version changed; NaN: it is stored whole.",
          m.kind == VersionKind::kFull || m.elements == 0 ? std::nan("")
                                                          : double(m.changed) / double(m.elements));
    gauge("deltawire_chain_bytes", "Bytes of parts of all versions so far.", double(m.chain_bytes));
  }
  const int64_t now = unix_seconds();
  for (const auto& [state, count] : fleet_.counts()) {
    gauge("deltawire_fleet_replicas", "Replicas that left a heartbeat, by state.", double(count),
          {{"state", std::string(state)}});
  }
  for (const auto& [object, row] : fleet_.rows()) {
    if (row.state == "gone" || !row.listed.heartbeat.ok()) continue;
    const Metrics::Labels labels = {{"replica", row.name()}, {"host", row.host()}};
    const auto version = version_of(row.listed.heartbeat->held);
    gauge("deltawire_fleet_replica_version", "The version that a replica holds; NaN: none.",
          version ? double(*version) : std::nan(""), labels);
    gauge("deltawire_fleet_replica_lag_versions",
          "Versions that a replica is behind the newest; NaN: it holds none of this chain.",
          row.standing.lag ? double(*row.standing.lag) : std::nan(""), labels);
    gauge("deltawire_fleet_replica_lag_seconds",
          "Time since the first version that a replica lacks was published; 0: it lacks none.",
          row.behind_since ? double(std::max<int64_t>(0, now - *row.behind_since)) : 0, labels);
    const auto pause = row.listed.heartbeat->pause_microseconds;
    gauge("deltawire_fleet_replica_pause_seconds",
          "How long an engine paused its requests for its last update; NaN: it does not tell.",
          pause ? double(*pause) / 1e6 : std::nan(""), labels);
  }
  for (const auto& [kind, count] : events_.counts()) {
    to->counter("deltawire_chain_events_total", "What happened while the server watched, by kind.",
                {{"chain", id_}, {"kind", std::string(kind)}})
        .add(double(count));
  }
}

}  // namespace deltawire
