#include "cli/slime/pull_endpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "base/log.h"
#include "bridge/slime/source.h"
#include "cli/metrics/record.h"
#include "tensor/text.h"

namespace deltawire::cli {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

HttpAnswer json_answer(std::string_view status, const Json& json) {
  return {std::string(status), "application/json", json_text(json, {.replace_bytes = true}) + "\n"};
}

HttpAnswer failed(std::string_view http_status, const Status& status) {
  return json_answer(
      http_status,
      {{"success", false}, {"message", status.to_string()}, {"code", code_name(status.code())}});
}

// More than an engine has ranks on a host, and fewer than connections: somebody who holds a
// folder's lock must not keep /health from being answered.
constexpr size_t kMaxPullsUnderWay = 24;

struct PullBody {
  std::string local, source;
  uint64_t target = 0;
};

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
  if (!json.is_object()) return invalid_argument("the body is no JSON object");
  PullBody body;
  for (const auto& [name, field] :
       {std::pair<const char*, std::string*>("local_checkpoint_dir", &body.local),
        {"source_dir", &body.source}}) {
    const auto found = json.find(name);
    if (found == json.end() || !found->is_string()) {
      return invalid_argument(fmt::format("\"{}\": expected a path", name));
    }
    *field = found->get<std::string>();
  }
  const auto target = json.find("target_version");
  if (target == json.end() || !target->is_number_unsigned()) {
    return invalid_argument("\"target_version\": expected a number from 0");
  }
  body.target = target->get<uint64_t>();
  return body;
}

void record_slime_pull(const SlimePullReport& report) {
  PullReport pulled;
  pulled.version = report.version;
  pulled.changed = report.changed;
  pulled.repaired = report.rebuilt && !report.reason.empty();
  pulled.recovered = report.recovered;
  pulled.num_hops = report.num_deltas;
  pulled.seconds = report.seconds;
  record_pull(pulled);
}

void settle_later(SlimePulled* pulled) {
  const Status status = pulled->settle();
  if (status.ok()) return;
  // The journal is still there: the next pull finishes it.
  log_event(LogLevel::kWarning, "pull.not_on_disk", {{"error", status}});
}

}  // namespace

HttpAnswer PullEndpoint::refuse(std::string_view status, std::string_view why) {
  return json_answer(status, {{"success", false}, {"message", why}});
}

HttpAnswer PullEndpoint::answer(const HttpMessage& message) const {
  const bool reads = message.method == "GET" || message.method == "HEAD";
  if (message.path == "/health") {
    if (!reads) return refuse("405 Method Not Allowed", "only GET");
    return json_answer("200 OK", {{"status", "ok"}});
  }
  if (message.path != "/pull_weights") {
    return refuse("404 Not Found", "there are POST /pull_weights and GET /health");
  }
  if (message.method != "POST") return refuse("405 Method Not Allowed", "only POST");
  const bool room = under_way_.fetch_add(1) < kMaxPullsUnderWay;
  HttpAnswer made = room ? pull(message)
                         : refuse("503 Service Unavailable",
                                  "too many pulls are under way, or wait for one that is");
  under_way_.fetch_sub(1);
  return made;
}

Result<fs::path> PullEndpoint::confined(const std::string& field, const std::string& path) const {
  const std::string place = "\"" + field + "\": " + quote(path);
  if (path.find('\0') != std::string::npos || !fs::path(path).is_absolute()) {
    return invalid_argument(place + ": expected an absolute path");
  }
  std::error_code error;
  fs::path real = fs::weakly_canonical(path, error);
  if (error || !is_below(real, roots_)) {
    return invalid_argument(place + ": not below a folder that was given with --root");
  }
  return real;
}

HttpAnswer PullEndpoint::pull(const HttpMessage& message) const {
  const Result<PullBody> body = parse_pull_body(message);
  if (!body.ok()) return failed("400 Bad Request", body.status());
  const Result<fs::path> local = confined("local_checkpoint_dir", body->local);
  if (!local.ok()) return failed("403 Forbidden", local.status());
  const Result<fs::path> source = confined("source_dir", body->source);
  if (!source.ok()) return failed("403 Forbidden", source.status());
  Result<SlimePulled> pulled =
      pull_within(context_, settings_, roots_, {*local, *source, body->target});
  if (!pulled.ok()) {
    record_failure("pull", pulled.status());
    log_event(LogLevel::kError, "pull.failed",
              {{"folder", local->string()}, {"version", body->target}, {"error", pulled.status()}});
    return failed("400 Bad Request", pulled.status());
  }
  const SlimePullReport& report = pulled->report();
  record_slime_pull(report);
  log_event(LogLevel::kInfo, "pull.done",
            {{"folder", local->string()},
             {"version", report.version},
             {"changed", report.changed},
             {"rebuilt", report.rebuilt},
             {"recovered", report.recovered},
             {"seconds", report.seconds}});
  Json json = {{"success", true}, {"message", "Success."}};
  json.update(slime_pull_json(report));
  HttpAnswer answer = json_answer("200 OK", json);
  const auto kept = std::make_shared<SlimePulled>(std::move(*pulled));
  answer.after = [kept] { settle_later(kept.get()); };
  return answer;
}

}  // namespace deltawire::cli
