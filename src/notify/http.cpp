#include "notify/http.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <memory>
#include <optional>
#include <random>
#include <thread>

#include "base/log.h"
#include "notify/transfer.h"

namespace deltawire {
namespace {

constexpr double kMaxBackoffSeconds = 5;
constexpr size_t kQuotedBytes = 300;  // of an answer, in a message

bool worth_a_retry(int status) {
  return status >= 500 ? status != 501 : status == 408 || status == 429;
}

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

void back_off(double first_seconds, unsigned attempt, const std::function<bool()>& stop) {
  static thread_local std::minstd_rand random{std::random_device{}()};
  const double whole = std::min(first_seconds * std::exp2(attempt), kMaxBackoffSeconds);
  const auto end = Clock::now() + std::chrono::duration_cast<Clock::duration>(Seconds(
                                      whole * std::uniform_real_distribution(0.5, 1.0)(random)));
  while (Clock::now() < end && !(stop && stop())) {
    std::this_thread::sleep_for(
        std::min<Clock::duration>(end - Clock::now(), std::chrono::milliseconds(50)));
  }
}

std::string call_name(std::string_view method, std::string_view path) {
  return std::string(method) + " " + std::string(path.substr(0, path.find('?')));
}

// The beginning of an answer on one line.
std::string excerpt(std::string_view body) {
  std::string line(body.substr(0, kQuotedBytes));
  for (char& c : line) {
    if (static_cast<unsigned char>(c) < 0x20) c = ' ';
  }
  if (body.size() > kQuotedBytes) line += "...";
  return line;
}

bool is_port(std::string_view text) {
  unsigned port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  return error == std::errc() && end == text.data() + text.size() && port >= 1 && port <= 65535;
}

// "host", "host:port", "[v6]:port"
Status check_authority(std::string_view authority) {
  const size_t bracket = authority.rfind(']');
  const size_t colon = authority.find(':', bracket == std::string_view::npos ? 0 : bracket);
  const std::string_view host = authority.substr(0, colon);
  if (host.empty()) return invalid_argument("there is no host in it");
  if (colon != std::string_view::npos && !is_port(authority.substr(colon + 1))) {
    return invalid_argument("the port must be a number from 1 to 65535");
  }
  return {};
}

}  // namespace

Result<std::string> check_engine_url(std::string_view url) {
  if (url.find('@') != std::string_view::npos) {  // which is not quoted: it may hold a password
    return invalid_argument(
        "no user or password in a URL: put the key into DELTAWIRE_ENGINE_API_KEY");
  }
  const std::string_view rest = url.starts_with("http://")    ? url.substr(7)
                                : url.starts_with("https://") ? url.substr(8)
                                                              : std::string_view();
  const auto bad = [&](std::string_view why) {
    return invalid_argument("\"" + std::string(url) + "\": " + std::string(why));
  };
  if (rest.data() == nullptr) return bad("a URL begins with http:// or https://");
  const auto plain = [](char c) { return c > ' ' && c < 0x7f && c != '"' && c != '\\'; };
  if (!std::all_of(rest.begin(), rest.end(), plain)) return bad("a character that no URL has");
  if (rest.find_first_of("?#") != std::string_view::npos) {
    return bad("only scheme, host, port and a path prefix");
  }
  if (Status status = check_authority(rest.substr(0, rest.find('/'))); !status.ok()) {
    return bad(status.message());
  }
  while (url.ends_with('/')) url.remove_suffix(1);
  return std::string(url);
}

HttpClient::HttpClient(std::string base_url, EngineOptions options)
    : base_url_(std::move(base_url)), options_(std::move(options)) {}

Status HttpClient::failure(std::string_view method, std::string_view path, const HttpReply& reply) {
  std::string message = call_name(method, path) + ": HTTP " + std::to_string(reply.status);
  if (!reply.body.empty()) message += ": " + excerpt(reply.body);
  if (worth_a_retry(reply.status)) return unavailable(std::move(message));
  if (reply.not_offered()) return unsupported(std::move(message));
  return invalid_argument(std::move(message));
}

Status HttpClient::not_understood(std::string_view method, std::string_view path,
                                  const HttpReply& reply, std::string_view expected) {
  return unsupported(call_name(method, path) + ": HTTP " + std::to_string(reply.status) +
                     ", but the answer is not " + std::string(expected) + ": " +
                     (reply.body.empty() ? "it is empty" : excerpt(reply.body)));
}

HttpClient::Stop HttpClient::end_after_a_last_word() const {
  if (!options_.cancelled) return {};
  // Shared by the copies of the function.
  return [this, since = std::make_shared<std::optional<Clock::time_point>>()] {
    if (!*since && options_.cancelled()) *since = Clock::now();
    return *since && Clock::now() - **since > Seconds(kLastWordSeconds);
  };
}

Result<HttpReply> HttpClient::post_last_word(std::string_view path, const std::string& json) const {
  Result<HttpReply> reply = call("POST", path, json, end_after_a_last_word());
  if (reply.ok() || reply.status().code() != Code::kCancelled) return reply;
  char text[32];
  std::snprintf(text, sizeof text, "%g", kLastWordSeconds);
  return cancelled(call_name("POST", path) + ": no answer within " + text +
                   " s of the request to stop");
}

Result<HttpReply> HttpClient::call(std::string_view method, std::string_view path,
                                   const std::string& body, const Stop& stop) const {
  const CallLimits& limits = options_.limits;
  for (unsigned attempt = 0;; ++attempt) {
    if (stop && stop()) return cancelled(call_name(method, path) + ": stopped on request");
    Result<HttpReply> reply = transfer({std::string(method), base_url_ + std::string(path), body,
                                        options_.api_key, limits.timeout_seconds, stop});
    if (reply.ok()) reply->body = hide_secret(std::move(reply->body), options_.api_key);
    if (reply.ok() && !worth_a_retry(reply->status)) return reply;
    Status failed = reply.ok() ? failure(method, path, *reply)
                               : std::move(reply).status().at(call_name(method, path));
    if (failed.code() != Code::kUnavailable || attempt >= limits.retries) return failed;
    log_event(LogLevel::kDebug, "engine.retry",
              {{"url", base_url_}, {"attempt", attempt + 1}, {"reason", failed}});
    back_off(limits.backoff_seconds, attempt, stop);
  }
}

}  // namespace deltawire
