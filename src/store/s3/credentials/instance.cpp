// The metadata of an EC2 instance, with the token that its second version asks for.
#include "store/s3/credentials/provider.h"

namespace deltawire::s3 {
namespace {

constexpr double kInstanceTimeoutSeconds = 1;  // it is on the same host, or it is not there
constexpr char kRoles[] = "/latest/meta-data/iam/security-credentials/";

std::string endpoint() {
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

Status http_failure(const std::string& place, int status) {
  return unavailable(place + ": HTTP " + std::to_string(status));
}

}  // namespace

Result<Offer> ask_instance(const Asking& asking) {
  if (is_disabled()) return nothing("AWS_EC2_METADATA_DISABLED is set");
  const std::string server = endpoint();
  Result<HttpAnswer> token =
      ask_nearby(asking, "PUT", server + "/latest/api/token",
                 {"x-aws-ec2-metadata-token-ttl-seconds: 21600"}, kInstanceTimeoutSeconds);
  // Most machines are no instance of EC2, and nothing or something else listens there.
  if (!token.ok()) return nothing(server + ": " + token.status().message());
  if (!token->ok() || token->text.empty() || !check_header_text("", token->text).ok()) {
    return nothing(server + ": gives no token (HTTP " + std::to_string(token->status) + ")");
  }
  const std::vector<std::string> headers = {"x-aws-ec2-metadata-token: " + token->text};

  std::string place = server + kRoles;
  DW_ASSIGN_OR_RETURN(const HttpAnswer roles,
                      ask_nearby(asking, "GET", place, headers, kInstanceTimeoutSeconds));
  const std::string role = roles.text.substr(0, roles.text.find_first_of("\r\n"));
  if (roles.status == 404 || (roles.ok() && role.empty())) {
    return nothing(server + ": the instance has no role");
  }
  if (!roles.ok()) return http_failure(place, roles.status);

  place += percent_encode(role, false);
  DW_ASSIGN_OR_RETURN(const HttpAnswer answer,
                      ask_nearby(asking, "GET", place, headers, kInstanceTimeoutSeconds));
  if (!answer.ok()) return http_failure(place, answer.status);
  DW_ASSIGN_OR_RETURN(Keys keys, parse_json_keys(place, answer.text));
  return offer_of(std::move(keys));
}

}  // namespace deltawire::s3
