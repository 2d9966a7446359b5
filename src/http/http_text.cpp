// The parts of HTTP that are text: URLs, headers, bodies in memory. Needs no libcurl.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <ctime>
#include <memory>
#include <optional>

#include "base/text.h"
#include "http/http_client.h"

namespace deltawire {
namespace {

// Names, IPv4 and [IPv6].
bool is_host(std::string_view host) {
  const bool ipv6 = host.starts_with('[') && host.ends_with(']');
  if (ipv6) host = host.substr(1, host.size() - 2);
  return !host.empty() && host.front() != '.' && std::all_of(host.begin(), host.end(), [&](char c) {
    return is_name_char(c) || (ipv6 && c == ':');
  });
}

}  // namespace

std::string_view HttpAnswer::header(std::string_view name) const {
  const auto found = headers.find(name);
  return found == headers.end() ? std::string_view() : found->second;
}

void HttpRequest::set_body(std::string_view text) {
  body_size = text.size();
  read_body = [text](uint64_t offset, std::span<uint8_t> out) {
    std::memcpy(out.data(), text.data() + offset, out.size());
    return Status();
  };
}

std::function<bool()> after_grace(std::function<bool()> stop, double seconds) {
  using Clock = std::chrono::steady_clock;
  if (!stop) return {};
  return [stop = std::move(stop), seconds,
          since = std::make_shared<std::optional<Clock::time_point>>()] {
    if (!*since && stop()) *since = Clock::now();
    return *since && Clock::now() - **since > std::chrono::duration<double>(seconds);
  };
}

Result<HttpUrl> parse_http_url(std::string_view url) {
  if (url.find('@') != url.npos)
    return invalid_argument("a URL may not contain a user or password");
  HttpUrl parsed;
  for (const char* const scheme : {"http", "https"}) {
    if (url.starts_with(std::string(scheme) + "://")) parsed.scheme = scheme;
  }
  if (parsed.scheme.empty()) return invalid_argument("a URL begins with http:// or https://");
  url.remove_prefix(parsed.scheme.size() + 3);
  const auto plain = [](char c) { return c > ' ' && c < 0x7f && c != '"' && c != '\\'; };
  if (!std::all_of(url.begin(), url.end(), plain)) {
    return invalid_argument("a character that a URL may not contain");
  }
  if (url.find_first_of("?#") != url.npos) {
    return invalid_argument("only scheme, host, port and a path prefix");
  }
  const std::string_view authority = url.substr(0, url.find('/'));
  url.remove_prefix(authority.size());
  while (url.ends_with('/')) url.remove_suffix(1);
  parsed.path = url;

  const size_t bracket = authority.rfind(']');
  const size_t colon = authority.find(':', bracket == authority.npos ? 0 : bracket);
  parsed.host = authority.substr(0, colon);
  if (parsed.host.empty()) return invalid_argument("there is no host in it");
  if (!is_host(parsed.host)) return invalid_argument("its host is not a name or an address");
  if (colon == authority.npos) return parsed;
  const std::string_view port = authority.substr(colon + 1);
  unsigned number = 0;
  if (!parse_number(port, &number) || number < 1 || number > 65535) {
    return invalid_argument("the port must be a number from 1 to 65535");
  }
  if (port != (parsed.scheme == "https" ? "443" : "80")) parsed.host.append(":").append(port);
  return parsed;
}

std::string printable(std::string_view text, size_t max_bytes) {
  std::string line(text.substr(0, max_bytes));
  for (char& c : line) {
    if (uint8_t(c) < ' ' || uint8_t(c) >= 127) c = '?';
  }
  if (text.size() > max_bytes) line += "...";
  return line;
}

}  // namespace deltawire
