#include "store/s3/credentials/sts.h"

#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/secret.h"
#include "store/s3/credentials/provider.h"
#include "store/s3/wire/sigv4.h"
#include "store/s3/wire/xml.h"

namespace deltawire::s3 {
namespace {

constexpr double kStsTimeoutSeconds = 10;
constexpr char kVersion[] = "2011-06-15";

// AWS_ENDPOINT_URL_STS, else the region's own.
std::string endpoint_of(const Asking& asking) {
  std::string url = environment_variable("AWS_ENDPOINT_URL_STS");
  while (url.ends_with('/')) url.pop_back();
  if (!url.empty()) return url;
  return "https://sts." + asking.region + ".amazonaws.com" +
         (asking.region.starts_with("cn-") ? ".cn" : "");
}

std::string host_of(const std::string& url) {
  const size_t begin = url.find("://") + 3;
  return url.substr(begin, url.find('/', begin) - begin);
}

Pairs form_of(const char* action, const Role& role) {
  Pairs form = {{"Action", action}, {"Version", kVersion}, {"RoleArn", role.arn}};
  form.emplace_back("RoleSessionName", role.session_name.empty()
                                           ? "deltawire-" + std::to_string(::getpid())
                                           : role.session_name);
  if (!role.external_id.empty()) form.emplace_back("ExternalId", role.external_id);
  return form;
}

// "AccessDenied: Not authorized to perform ...", without the secret that was sent.
std::string reason_of(const HttpAnswer& answer, const Secret& sent) {
  std::string code, message;
  static_cast<void>(read_elements(answer.text, [&](std::string_view path, const std::string& text) {
    if (path.ends_with("/Error/Code")) code = text;
    if (path.ends_with("/Error/Message")) message = text;
    return Status();
  }));
  std::string reason = "HTTP " + std::to_string(answer.status);
  if (!code.empty()) reason += " " + code;
  if (!message.empty()) reason += ": " + message;
  reason = hide_secret(std::move(reason), sent).substr(0, 300);
  for (char& c : reason) {
    if (uint8_t(c) < ' ' || uint8_t(c) >= 127) c = '?';
  }
  return reason;
}

// What may pass: 5xx, and an identity provider that STS could not reach.
Status failure_of(const std::string& place, const HttpAnswer& answer, const Secret& sent) {
  const std::string message = place + ": " + reason_of(answer, sent);
  const bool passing = answer.status >= 500 || answer.status == 429 ||
                       answer.text.find("<Code>IDPCommunicationError<") != std::string::npos;
  return passing ? unavailable(message) : io_error(message);
}

Result<Keys> parse_keys(const std::string& place, const std::string& xml) {
  Keys keys;
  std::string expiration;
  DW_RETURN_IF_ERROR(read_elements(xml, [&](std::string_view path, const std::string& text) {
                       if (path.ends_with("/Credentials/AccessKeyId"))
                         keys.credentials.access_key = text;
                       if (path.ends_with("/Credentials/SecretAccessKey"))
                         keys.credentials.secret_key = text;
                       if (path.ends_with("/Credentials/SessionToken"))
                         keys.credentials.session_token = text;
                       if (path.ends_with("/Credentials/Expiration")) expiration = text;
                       return Status();
                     }).at(place));
  DW_RETURN_IF_ERROR(check_credentials(place, keys.credentials));
  DW_ASSIGN_OR_RETURN(keys.expires, parse_expiry(expiration));
  return keys;
}

// `signer`: null where the form itself proves who asks.
Result<Keys> call(const Asking& asking, const Pairs& form, const Credentials* signer,
                  const Secret& sent) {
  const std::string url = endpoint_of(asking) + "/", body = canonical_query(form);
  const std::string place = url + ", " + form.front().second;
  const MemoryBody bytes(body);
  HttpRequest request;
  request.method = "POST";
  request.url = url;
  request.body = {&bytes, 0, body.size()};
  request.timeout_seconds = request.stall_seconds = kStsTimeoutSeconds;
  Pairs headers = {{"content-type", "application/x-www-form-urlencoded"}, {"host", host_of(url)}};
  if (signer != nullptr) {
    SigningScope scope{asking.region, "sts", amz_time(unix_seconds())};
    headers.emplace_back("x-amz-date", scope.time);
    if (!signer->session_token.empty()) {
      headers.emplace_back("x-amz-security-token", signer->session_token);
    }
    const std::string sha256 = sha256_hex(body);
    request.headers.push_back(
        "authorization: " +
        authorization({request.method, "/", "", headers, sha256}, scope, *signer));
  }
  for (const auto& [name, value] : headers) request.headers.push_back(name + ": " + value);
  Result<HttpAnswer> answer = asking.http->perform(request);
  if (!answer.ok()) return std::move(answer).status().at(place);
  if (!answer->ok()) return failure_of(place, *answer, sent);
  return parse_keys(place, answer->text);
}

}  // namespace

Result<Keys> assume_role_with_web_identity(const Asking& asking, const Role& role,
                                           const std::filesystem::path& token_file) {
  DW_ASSIGN_OR_RETURN(std::string token, read_text_file(token_file, kMaxTokenBytes));
  while (!token.empty() && uint8_t(token.back()) <= ' ') token.pop_back();
  if (token.empty()) return invalid_argument(token_file.string() + ": there is no token in it");
  Pairs form = form_of("AssumeRoleWithWebIdentity", role);
  form.emplace_back("WebIdentityToken", token);
  return call(asking, form, nullptr, Secret(token));
}

Result<Keys> assume_role(const Asking& asking, const Role& role, const Credentials& credentials) {
  return call(asking, form_of("AssumeRole", role), &credentials, Secret(credentials.session_token));
}

}  // namespace deltawire::s3
