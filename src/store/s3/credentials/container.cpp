// The server beside a container: ECS, EKS Pod Identity.
#include <algorithm>

#include "base/file.h"
#include "store/s3/credentials/provider.h"

namespace deltawire::s3 {
namespace {

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
  if (!plain) return invalid_argument(std::string(from) + " holds a character that no token has");
  return token;
}

}  // namespace

Result<Offer> ask_container(const Asking& asking) {
  const std::string relative = environment_variable("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
  const std::string full = environment_variable("AWS_CONTAINER_CREDENTIALS_FULL_URI");
  if (relative.empty() && full.empty()) {
    return nothing("neither AWS_CONTAINER_CREDENTIALS_RELATIVE_URI nor _FULL_URI is set");
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
  Result<HttpAnswer> answer =
      ask_nearby(asking, "GET", url, std::move(headers), kContainerTimeoutSeconds);
  if (!answer.ok()) return std::move(answer).status().at(place);
  if (!answer->ok()) {
    const std::string message = place + ": HTTP " + std::to_string(answer->status);
    return answer->status >= 500 || answer->status == 429 ? unavailable(message)
                                                          : io_error(message);
  }
  DW_ASSIGN_OR_RETURN(Keys keys, parse_json_keys(place, answer->text));
  return offer_of(std::move(keys));
}

}  // namespace deltawire::s3
