// Servers that give out keys: STS, the one beside a container, an EC2 instance's metadata.
#include <unistd.h>

#include <algorithm>

#include "base/clock.h"
#include "base/file.h"
#include "base/secret.h"
#include "base/text.h"
#include "store/s3/answers.h"
#include "store/s3/credentials.h"

namespace deltawire::s3 {
namespace {

constexpr uint64_t kMaxTokenBytes = 64 << 10;  // of a file that holds one
constexpr double kStsTimeoutSeconds = 10;
constexpr char kVersion[] = "2011-06-15";

// AWS_ENDPOINT_URL_STS, else the region's own.
std::string sts_endpoint(const Asking& asking) {
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
  return printable(hide_secret(std::move(reason), sent));
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
  const std::string url = sts_endpoint(asking) + "/", body = canonical_query(form);
  const std::string place = url + ", " + form.front().second;
  HttpRequest request;
  request.method = "POST";
  request.url = url;
  request.set_body(body);
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
  DW_ASSIGN_OR_RETURN(HttpAnswer answer, located(asking.http->perform(request), place));
  if (!answer.ok()) return failure_of(place, answer, sent);
  return parse_keys(place, answer.text);
}

// ---- the server beside a container: ECS, EKS Pod Identity

// One GET or PUT past any proxy, to a server of this machine or its host.
Result<HttpAnswer> ask_nearby(const Asking& asking, const std::string& method,
                              const std::string& url, std::vector<std::string> headers,
                              double timeout_seconds) {
  HttpRequest request;
  request.method = method;
  request.url = url;
  request.headers = std::move(headers);
  request.timeout_seconds = request.stall_seconds = timeout_seconds;
  request.use_proxy = false;
  return asking.http->perform(request);
}

constexpr char kHost[] = "http://169.254.170.2";
constexpr double kContainerTimeoutSeconds = 2;

// A key may go in the clear to this machine and to the addresses that AWS gives to the server of
// its host, nowhere else.
bool is_nearby(const std::string& url) {
  if (url.starts_with("https://")) return true;
  if (!url.starts_with("http://")) return false;
  const std::string authority = url.substr(7, url.find('/', 7) - 7);
  if (authority.find('@') != std::string::npos) return false;
  static constexpr std::string_view kHosts[] = {
      "127.0.0.1", "localhost", "[::1]", "169.254.170.2", "169.254.170.23", "[fd00:ec2::23]"};
  return std::any_of(std::begin(kHosts), std::end(kHosts), [&](std::string_view host) {
    return authority == host || authority.starts_with(std::string(host) + ":");
  });
}

Result<std::string> authorization_token() {
  const std::string file = environment_variable("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE");
  std::string token = environment_variable("AWS_CONTAINER_AUTHORIZATION_TOKEN");
  const char* const from =
      file.empty() ? "AWS_CONTAINER_AUTHORIZATION_TOKEN" : "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE";
  if (!file.empty()) {
    DW_ASSIGN_OR_RETURN(token, read_text_file(file, kMaxTokenBytes));
    while (!token.empty() && (token.back() == '\n' || token.back() == '\r')) token.pop_back();
  }
  // "Basic abc" is one too: blanks are fine inside.
  const bool plain =
      std::all_of(token.begin(), token.end(), [](char c) { return c >= ' ' && c <= '~'; });
  if (!plain)
    return invalid_argument(std::string(from) + " holds a character that a token may not contain");
  return token;
}

// ---- the metadata of an EC2 instance, with the token that its second version asks for

constexpr double kInstanceTimeoutSeconds = 1;  // it is on the same host, or it is not there
constexpr char kRoles[] = "/latest/meta-data/iam/security-credentials/";

std::string metadata_endpoint() {
  std::string url = environment_variable("AWS_EC2_METADATA_SERVICE_ENDPOINT");
  while (url.ends_with('/')) url.pop_back();
  if (!url.empty()) return url;
  const std::string mode = environment_variable("AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE");
  return mode == "IPv6" || mode == "ipv6" ? "http://[fd00:ec2::254]" : "http://169.254.169.254";
}

bool is_disabled() {
  const std::string text = environment_variable("AWS_EC2_METADATA_DISABLED");
  return text == "true" || text == "True" || text == "TRUE" || text == "1";
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

// A role for a token in a file, as Kubernetes gives it to a pod (IRSA).
Result<Offer> ask_web_identity(const Asking& asking) {
  const std::string file = environment_variable("AWS_WEB_IDENTITY_TOKEN_FILE");
  const Role role{environment_variable("AWS_ROLE_ARN"),
                  environment_variable("AWS_ROLE_SESSION_NAME"), ""};
  if (file.empty()) return no_keys("AWS_WEB_IDENTITY_TOKEN_FILE is not set");
  if (role.arn.empty()) {
    return invalid_argument("AWS_WEB_IDENTITY_TOKEN_FILE is set, and AWS_ROLE_ARN is not");
  }
  DW_ASSIGN_OR_RETURN(Keys keys, assume_role_with_web_identity(asking, role, file));
  return offer_of(std::move(keys));
}

Result<Offer> ask_container(const Asking& asking) {
  const std::string relative = environment_variable("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
  const std::string full = environment_variable("AWS_CONTAINER_CREDENTIALS_FULL_URI");
  if (relative.empty() && full.empty()) {
    return no_keys("neither AWS_CONTAINER_CREDENTIALS_RELATIVE_URI nor _FULL_URI is set");
  }
  const std::string url = relative.empty() ? full : kHost + relative;
  // Not the URL itself, which may hold a password.
  const std::string place =
      relative.empty() ? "AWS_CONTAINER_CREDENTIALS_FULL_URI" : kHost + relative;
  if (!is_nearby(url)) {
    return invalid_argument(place +
                            ": only https, or http to this machine or to a host of AWS's own");
  }
  DW_ASSIGN_OR_RETURN(const std::string token, authorization_token());
  std::vector<std::string> headers = {"accept: application/json"};
  if (!token.empty()) headers.push_back("authorization: " + token);
  DW_ASSIGN_OR_RETURN(
      HttpAnswer answer,
      located(ask_nearby(asking, "GET", url, std::move(headers), kContainerTimeoutSeconds), place));
  if (!answer.ok()) return failure_of(place, answer, Secret(token));
  DW_ASSIGN_OR_RETURN(Keys keys, parse_json_keys(place, answer.text));
  return offer_of(std::move(keys));
}

Result<Offer> ask_instance(const Asking& asking) {
  if (is_disabled()) return no_keys("AWS_EC2_METADATA_DISABLED is set");
  const std::string server = metadata_endpoint();
  Result<HttpAnswer> token =
      ask_nearby(asking, "PUT", server + "/latest/api/token",
                 {"x-aws-ec2-metadata-token-ttl-seconds: 21600"}, kInstanceTimeoutSeconds);
  // Most machines are no instance of EC2, and nothing or something else listens there.
  if (!token.ok()) return no_keys(server + ": " + token.status().message());
  if (!token->ok() || token->text.empty() || !check_header_text("", token->text).ok()) {
    return no_keys(server + ": gives no token (HTTP " + std::to_string(token->status) + ")");
  }
  const std::vector<std::string> headers = {"x-aws-ec2-metadata-token: " + token->text};

  std::string place = server + kRoles;
  DW_ASSIGN_OR_RETURN(const HttpAnswer roles,
                      ask_nearby(asking, "GET", place, headers, kInstanceTimeoutSeconds));
  const std::string role = roles.text.substr(0, roles.text.find_first_of("\r\n"));
  if (roles.status == 404 || (roles.ok() && role.empty())) {
    return no_keys(server + ": the instance has no role");
  }
  if (!roles.ok()) return unavailable(place + ": HTTP " + std::to_string(roles.status));

  place += percent_encode(role, false);
  DW_ASSIGN_OR_RETURN(const HttpAnswer answer,
                      ask_nearby(asking, "GET", place, headers, kInstanceTimeoutSeconds));
  if (!answer.ok()) return unavailable(place + ": HTTP " + std::to_string(answer.status));
  DW_ASSIGN_OR_RETURN(Keys keys, parse_json_keys(place, answer.text));
  return offer_of(std::move(keys));
}

}  // namespace deltawire::s3
