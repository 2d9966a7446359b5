#include "cli/metrics.h"

#include <array>
#include <chrono>
#include <cmath>
#include <string>

#include "base/clock.h"

namespace deltawire::cli {
namespace {

// From a patch of a small model to a seed over a slow link.
constexpr std::array kSeconds = {0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0};
constexpr std::array kDensities = {0.0001, 0.0003, 0.001, 0.003, 0.01, 0.02, 0.05, 0.1, 0.3, 1.0};

void record_success(const std::string& operation, double seconds, const std::vector<Phase>& phases,
                    Metrics& to) {
  to.gauge("deltawire_last_success_timestamp_seconds",
           "When an operation last succeeded, seconds since 1970.", {{"operation", operation}})
      .set(unix_seconds_now());
  to.histogram("deltawire_operation_seconds", "How long a publish or pull took.", kSeconds,
               {{"operation", operation}})
      .observe(seconds);
  for (const Phase& phase : phases) {
    to.histogram("deltawire_phase_seconds",
                 "How long a phase of an operation took; phases overlap.", kSeconds,
                 {{"operation", operation}, {"phase", phase.name}})
        .observe(phase.end - phase.begin);
  }
}

double or_nan(std::optional<uint64_t> version) { return version ? double(*version) : std::nan(""); }

}  // namespace

void record_publish(const PublishReport& report, Metrics& to) {
  record_success("publish", report.seconds, report.phases, to);
  const char* kind = !report.committed ? "unchanged" : report.full ? "full" : "delta";
  to.counter("deltawire_publishes_total", "Publishes, by kind: delta, full, unchanged.",
             {{"kind", kind}})
      .add();
  to.gauge("deltawire_head_version", "The newest version of the chain.")
      .set(double(report.version));
  to.gauge("deltawire_weights_bytes", "Size of the whole model.").set(double(report.weights_bytes));
  to.counter("deltawire_published_bytes_total", "Bytes of parts that were published.")
      .add(double(report.bytes));
  const auto changes = [&](const char* change, uint64_t count) {
    to.counter("deltawire_schema_changes_total",
               "Tensors that versions added, removed, or gave another shape or dtype.",
               {{"change", change}})
        .add(double(count));
  };
  changes("added", report.num_added);
  changes("removed", report.num_removed);
  changes("reshaped", report.num_reshaped);
  if (!report.committed || report.num_elements == 0) return;
  const double density = double(report.num_changed) / double(report.num_elements);
  to.gauge("deltawire_last_density", "Share of elements that the newest version changed.")
      .set(density);
  to.histogram("deltawire_density", "Share of elements that a version changed.", kDensities)
      .observe(density);
}

void record_pull(const PullReport& report, Metrics& to) {
  record_success("pull", report.seconds, report.phases, to);
  to.counter("deltawire_pulls_total", "Pulls, by whether they changed the checkpoint.",
             {{"changed", report.changed ? "true" : "false"}})
      .add();
  to.gauge("deltawire_version", "The version that the local checkpoint holds.")
      .set(double(report.version));
  to.counter("deltawire_pulled_bytes_total", "Bytes of parts that were fetched.")
      .add(double(report.bytes));
  to.counter("deltawire_repairs_total", "Checkpoints that were rebuilt from an anchor.")
      .add(report.repaired ? 1 : 0);
  to.counter("deltawire_recoveries_total",
             "Interrupted steps of an earlier process that were finished.")
      .add(report.recovered ? 1 : 0);
  if (!report.changed) return;
  to.counter("deltawire_pull_hops_total", "Deltas and anchors that were applied.")
      .add(double(report.num_hops));
  to.histogram("deltawire_patch_seconds", "How long files were being changed by a pull.", kSeconds)
      .observe(report.patch_seconds);
}

void record_failure(std::string_view operation, const Status& status, Metrics& to) {
  to.counter(
        "deltawire_failures_total", "Operations that failed, by code.",
        {{"operation", std::string(operation)}, {"code", std::string(code_name(status.code()))}})
      .add();
}

void record_lag(std::optional<uint64_t> head, std::optional<uint64_t> version, Metrics& to) {
  if (head)
    to.gauge("deltawire_head_version", "The newest version of the chain.").set(double(*head));
  if (version) {
    to.gauge("deltawire_version", "The version that the local checkpoint holds.")
        .set(double(*version));
  }
  if (!head) return;
  const double have = version ? double(*version) + 1 : 0;  // versions held, counting from 0
  const double lag = double(*head) + 1 - have;
  to.gauge("deltawire_lag_versions",
           "How many versions the checkpoint is behind the chain; NaN: it is ahead of it.")
      .set(lag >= 0 ? lag : std::nan(""));
}

void record_mirror(const Mirrored& mirrored, Metrics& to) {
  record_success("mirror", mirrored.seconds, {}, to);
  to.counter(
        "deltawire_mirrored_total",
        "Records that were copied into the mirror, by kind: delta (a version), merged, anchor.",
        {{"kind", std::string(hop_kind_name(mirrored.kind))}})
      .add();
  to.counter("deltawire_mirrored_bytes_total", "Bytes of objects that were copied.")
      .add(double(mirrored.bytes));
  to.counter("deltawire_mirrored_objects_total", "Objects that were copied.")
      .add(double(mirrored.num_objects - mirrored.num_there));
}

void record_engines(const NotifyOutcome& outcome, Metrics& to) {
  if (outcome.engines.empty()) return;
  to.histogram("deltawire_engine_pause_seconds",
               "From the first engine's pause until the last one was resumed.", kSeconds)
      .observe(outcome.pause_seconds);
  for (const EngineOutcome& engine : outcome.engines) {
    to.gauge("deltawire_engine_version", "The version that an engine serves; NaN: not known.",
             {{"engine", engine.engine}})
        .set(or_nan(version_of(engine.serving)));
    to.counter("deltawire_engine_reloads_total",
               "Requests to an engine to load a version, by result.",
               {{"engine", engine.engine}, {"result", engine.status.ok() ? "ok" : "failed"}})
        .add();
    if (!engine.reloaded) continue;
    to.histogram("deltawire_engine_reload_seconds", "How long an engine took to reload.", kSeconds,
                 {{"engine", engine.engine}})
        .observe(engine.reload_seconds);
  }
}

namespace {

HttpReply metrics_text(int status, std::string body) {
  return {status, "text/plain; version=0.0.4; charset=utf-8", std::move(body)};
}

HttpReply answer_scrape(const HttpCall& message, const std::function<std::string()>& render) {
  if (message.method != "GET" && message.method != "HEAD") return metrics_text(405, "only GET\n");
  if (message.path == "/metrics") return metrics_text(200, render());
  if (message.path == "/") return metrics_text(200, "deltawire: see /metrics\n");
  return metrics_text(404, "see /metrics\n");
}

}  // namespace

Result<std::unique_ptr<HttpServer>> serve_metrics(const std::string& address, uint16_t port,
                                                  std::function<std::string()> render) {
  HttpSettings settings;
  settings.name = "metrics";
  settings.refuse = [](int status, const std::string& why) {
    return metrics_text(status, why + "\n");
  };
  return HttpServer::start(address, port, std::move(settings),
                           [render = std::move(render)](const HttpCall& message) {
                             return answer_scrape(message, render);
                           });
}

}  // namespace deltawire::cli
