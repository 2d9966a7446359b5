#include "store/s3/credentials/provider.h"

#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "store/s3/wire/answers.h"

namespace deltawire::s3 {

Offer nothing(std::string why_not) { return {std::nullopt, std::move(why_not)}; }
Offer offer_of(Keys keys) { return {std::move(keys), {}}; }

std::string environment_variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

Status check_header_text(std::string_view what, std::string_view text) {
  for (const char c : text) {
    if (c > ' ' && c <= '~') continue;
    return invalid_argument(std::string(what) + " holds a character that no key has");
  }
  return {};
}

Status check_credentials(std::string_view where, const Credentials& credentials) {
  const std::string begin(where);
  if (credentials.access_key.empty() || credentials.secret_key.empty()) {
    return invalid_argument(begin + ": access key id and secret access key must both be set");
  }
  DW_RETURN_IF_ERROR(check_header_text(begin + ": the access key id", credentials.access_key));
  DW_RETURN_IF_ERROR(check_header_text(begin + ": the secret access key", credentials.secret_key));
  return check_header_text(begin + ": the session token", credentials.session_token);
}

Result<int64_t> parse_expiry(std::string_view text) {
  constexpr size_t kToSeconds = sizeof("2026-08-21T12:03:04") - 1;
  const size_t zone = text.find_first_of("Z+-", std::min(text.size(), kToSeconds));
  if (zone == text.npos) return corruption("not a time");
  DW_ASSIGN_OR_RETURN(const int64_t seconds,
                      parse_time(std::string(text.substr(0, kToSeconds)) + "Z"));
  if (text[zone] == 'Z') return seconds;
  int hours = 0, minutes = 0;
  const std::string offset(text.substr(zone + 1));
  if (std::sscanf(offset.c_str(), "%2d:%2d", &hours, &minutes) != 2)
    return corruption("not a time");
  const int64_t east = int64_t(hours) * 3600 + int64_t(minutes) * 60;
  return text[zone] == '+' ? seconds - east : seconds + east;
}

Result<Keys> parse_json_keys(std::string_view where, std::string_view json) {
  const std::string begin(where);
  const nlohmann::json answer = parse_json(json);
  if (!answer.is_object()) return corruption(begin + ": what it said is not a JSON object");
  const auto text = [&](const char* name) -> std::string {
    const auto found = answer.find(name);
    return found != answer.end() && found->is_string() ? found->get<std::string>() : "";
  };
  Keys keys;
  keys.credentials = {text("AccessKeyId"), text("SecretAccessKey"), text("SessionToken")};
  if (keys.credentials.session_token.empty()) keys.credentials.session_token = text("Token");
  DW_RETURN_IF_ERROR(check_credentials(begin, keys.credentials));
  if (const std::string expiration = text("Expiration"); !expiration.empty()) {
    const Result<int64_t> expires = parse_expiry(expiration);
    if (!expires.ok()) return corruption(begin + ": its Expiration is not a time");
    keys.expires = *expires;
  }
  return keys;
}

Result<HttpAnswer> ask_nearby(const Asking& asking, const std::string& method,
                              const std::string& url, std::vector<std::string> headers,
                              double timeout_seconds) {
  HttpRequest request;
  request.method = method;
  request.url = url;
  request.headers = std::move(headers);
  request.timeout_seconds = request.stall_seconds = timeout_seconds;
  request.past_proxies = true;
  return asking.http->perform(request);
}

}  // namespace deltawire::s3
