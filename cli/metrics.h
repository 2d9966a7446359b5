// Metrics of long-running verbs, and GET /metrics. docs/reference.md lists the names.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/metrics.h"
#include "deltawire/mirror.h"
#include "deltawire/publisher.h"
#include "deltawire/replica.h"
#include "http/http_server.h"
#include "notify/notifier.h"

namespace deltawire::cli {

void record_publish(const PublishReport& report, Metrics& to = metrics());
void record_pull(const PullReport& report, Metrics& to = metrics());
// `operation` is "publish" or "pull". Also counts attempts that will be repeated.
void record_failure(std::string_view operation, const Status& status, Metrics& to = metrics());
// Records the chain's newest version, as the replica sees it, and the replica's own.
void record_lag(std::optional<uint64_t> head, std::optional<uint64_t> version,
                Metrics& to = metrics());
// What a mirror has copied with one step; its lag is record_lag()'s.
void record_mirror(const Mirrored& mirrored, Metrics& to = metrics());
void record_engines(const NotifyOutcome& outcome, Metrics& to = metrics());

// GET /metrics and nothing else, as HttpServer::start(). `render` is called for every scrape.
Result<std::unique_ptr<HttpServer>> serve_metrics(const std::string& address, uint16_t port,
                                                  std::function<std::string()> render);

}  // namespace deltawire::cli
