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
// Nobody outside this machine reaches it. False for other names, whatever they mean.
bool is_loopback(std::string_view host) noexcept;

}  // namespace deltawire
