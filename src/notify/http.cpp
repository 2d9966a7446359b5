#include "notify/http.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <random>
#include <thread>

#include "base/clock.h"
#include "base/log.h"

namespace deltawire {
namespace {

constexpr double kMaxBackoffSeconds = 5;

bool worth_a_retry(int status) {
  return status >= 500 ? status != 501 : status == 408 || status == 429;
}

void back_off(double first_seconds, unsigned attempt, const std::function<bool()>& stop) {
  static thread_local std::minstd_rand random{std::random_device{}()};
  const double whole = std::min(first_seconds * std::exp2(attempt), kMaxBackoffSeconds);
  sleep_unless(whole * std::uniform_real_distribution(0.5, 1.0)(random),
               [&] { return stop && stop(); });
}

std::string call_name(std::string_view method, std::string_view path) {
  return std::string(method) + " " + std::string(path.substr(0, path.find('?')));
}

}  // namespace

Result<std::string> check_engine_url(std::string_view url) {
  Status bad = parse_http_url(url).status();
  // A URL with a user in it is not quoted: it may hold a password.
  if (url.find('@') != url.npos) {
    return invalid_argument(bad.message() + ": put the key into DELTAWIRE_ENGINE_API_KEY");
  }
  if (!bad.ok()) return std::move(bad).at("\"" + std::string(url) + "\"");
  while (url.ends_with('/')) url.remove_suffix(1);
  return std::string(url);
}

EngineClient::EngineClient(std::string base_url, EngineOptions options)
    : base_url_(std::move(base_url)),
      options_(std::move(options)),
      http_(std::make_unique<HttpClient>()) {}

Status EngineClient::failure(std::string_view method, std::string_view path,
                             const HttpAnswer& answer) {
  std::string message = call_name(method, path) + ": HTTP " + std::to_string(answer.status);
  if (!answer.text.empty()) message += ": " + printable(answer.text);
  if (worth_a_retry(answer.status)) return unavailable(std::move(message));
  if (not_offered(answer)) return unsupported(std::move(message));
  return invalid_argument(std::move(message));
}

Status EngineClient::not_understood(std::string_view method, std::string_view path,
                                    const HttpAnswer& answer, std::string_view expected) {
  return unsupported(call_name(method, path) + ": HTTP " + std::to_string(answer.status) +
                     ", but the answer is not " + std::string(expected) + ": " +
                     (answer.text.empty() ? "it is empty" : printable(answer.text)));
}

Result<HttpAnswer> EngineClient::post_despite_stop(std::string_view path,
                                                   const std::string& json) const {
  Result<HttpAnswer> answer =
      call("POST", path, json, after_grace(options_.cancelled, kGraceSeconds));
  if (answer.ok() || answer.status().code() != Code::kCancelled) return answer;
  return cancelled(call_name("POST", path) + ": no answer within " +
                   std::to_string(int(kGraceSeconds)) + " s of the request to stop");
}

Result<HttpAnswer> EngineClient::call(std::string_view method, std::string_view path,
                                      const std::string& body, const Stop& stop) const {
  const CallLimits& limits = options_.limits;
  HttpRequest request;
  request.method = method;
  request.url = base_url_ + std::string(path);
  request.headers = {"Content-Type: application/json"};
  if (!options_.api_key.empty()) {
    request.headers.push_back("Authorization: Bearer " + options_.api_key.reveal());
  }
  request.set_body(body);
  request.use_proxy = false;
  request.timeout_seconds = limits.timeout_seconds;
  request.cancelled = stop;
  for (unsigned attempt = 0;; ++attempt) {
    if (stop && stop()) return cancelled(call_name(method, path) + ": stopped on request");
    Result<HttpAnswer> answer = http_->perform(request);
    if (answer.ok()) answer->text = hide_secret(std::move(answer->text), options_.api_key);
    if (answer.ok() && !worth_a_retry(answer->status)) return answer;
    Status failed = answer.ok() ? failure(method, path, *answer)
                                : std::move(answer).status().at(call_name(method, path));
    if (failed.code() != Code::kUnavailable || attempt >= limits.retries) return failed;
    log_event(LogLevel::kDebug, "engine.retry",
              {{"url", base_url_}, {"attempt", attempt + 1}, {"reason", failed}});
    back_off(limits.backoff_seconds, attempt, stop);
  }
}

}  // namespace deltawire
