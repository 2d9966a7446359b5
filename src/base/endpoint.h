// Host and port, as text.
#pragma once

#include <string>
#include <string_view>

#include "deltawire/status.h"

namespace deltawire {

// "host:port", "10.0.0.1:4711", "[::1]:4711".
struct Endpoint {
  std::string host;
  std::string port;
};
Result<Endpoint> parse_endpoint(std::string_view text);
std::string endpoint_text(std::string_view host, unsigned port);
// Only this machine can reach the host. False for all other names, whatever they resolve to.
bool is_loopback(std::string_view host) noexcept;

}  // namespace deltawire
