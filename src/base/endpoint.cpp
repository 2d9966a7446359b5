#include "base/endpoint.h"

#include "base/text.h"

namespace deltawire {

Result<Endpoint> parse_endpoint(std::string_view text) {
  const size_t colon = text.rfind(':');
  const std::string shown(text.substr(0, 300));
  if (colon == std::string_view::npos || colon + 1 == text.size()) {
    return invalid_argument("address " + shown + ": not HOST:PORT");
  }
  Endpoint endpoint{std::string(text.substr(0, colon)), std::string(text.substr(colon + 1))};
  uint16_t port = 0;
  if (endpoint.port.size() > 5 || !parse_number(endpoint.port, &port)) {
    return invalid_argument("address " + shown + ": not a port: " + endpoint.port);
  }
  if (endpoint.host.size() > 2 && endpoint.host.front() == '[' && endpoint.host.back() == ']') {
    endpoint.host = endpoint.host.substr(1, endpoint.host.size() - 2);
  } else if (endpoint.host.find(':') != std::string::npos) {
    return invalid_argument("address " + shown + ": write [HOST]:PORT for IPv6");
  }
  if (endpoint.host.empty() || endpoint.host.size() > 255) {
    return invalid_argument("address " + shown + ": not HOST:PORT");
  }
  return endpoint;
}

std::string endpoint_text(std::string_view host, unsigned port) {
  const bool v6 = host.find(':') != std::string_view::npos;
  return (v6 ? "[" : "") + std::string(host) + (v6 ? "]:" : ":") + std::to_string(port);
}

bool is_loopback(std::string_view host) noexcept {
  return host == "localhost" || host == "::1" || host.starts_with("127.");
}

}  // namespace deltawire
