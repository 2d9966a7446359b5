#include "store/s3/address.h"

#include "store/s3/wire/sigv4.h"

namespace deltawire::s3 {
namespace {

bool word_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-';
}

// Names, IPv4 and [IPv6].
bool good_host(std::string_view host) {
  const bool ipv6 = host.starts_with('[') && host.ends_with(']');
  if (ipv6) host = host.substr(1, host.size() - 2);
  if (host.empty() || host.front() == '.') return false;
  for (const char c : host) {
    if (!word_char(c) && c != '.' && c != '_' && !(ipv6 && c == ':')) return false;
  }
  return true;
}

bool good_port(std::string_view port) {
  unsigned value = 0;
  for (const char c : port) {
    if (c < '0' || c > '9') return false;
    value = value * 10 + unsigned(c - '0');
    if (value > 65535) return false;
  }
  return value > 0;
}

}  // namespace

Status check_bucket(std::string_view bucket) {
  bool good = bucket.size() >= 3 && bucket.size() <= 63 && bucket.front() != '.' &&
              bucket.back() != '.' && bucket.find("..") == bucket.npos;
  for (const char c : bucket) good = good && (word_char(c) || c == '.' || c == '_');
  if (good) return {};
  return invalid_argument("not the name of a bucket: 3 to 63 letters, digits, '-' and '.'");
}

Status check_region(std::string_view region) {
  bool good = !region.empty() && region.size() <= 63;
  for (const char c : region) good = good && (word_char(c) || c == '_');
  if (good) return {};
  return invalid_argument("not the name of a region: letters, digits and '-'");
}

Result<Address> Address::make(std::string_view endpoint, std::string_view bucket,
                              bool virtual_host) {
  Address address;
  address.bucket_ = bucket;
  if (endpoint.empty()) {
    address.scheme_ = "https";
    address.virtual_host_ = bucket.find('.') == bucket.npos;
    return address;
  }
  // The text may hold a password: it is not shown.
  const Status bad = invalid_argument("the endpoint is not http(s)://HOST[:PORT]");
  std::string_view rest = endpoint;
  if (rest.ends_with('/')) rest.remove_suffix(1);
  const size_t colon = rest.find("://");
  if (colon == rest.npos) return bad;
  address.scheme_ = rest.substr(0, colon);
  if (address.scheme_ != "http" && address.scheme_ != "https") return bad;
  rest.remove_prefix(colon + 3);

  const size_t bracket = rest.find(']');
  const size_t port_at = rest.find(':', bracket == rest.npos ? 0 : bracket);
  const std::string_view host = rest.substr(0, port_at);
  if (!good_host(host)) return bad;
  address.host_ = host;
  if (port_at != rest.npos) {
    const std::string_view port = rest.substr(port_at + 1);
    if (!good_port(port)) return bad;
    const bool is_default = port == (address.scheme_ == "https" ? "443" : "80");
    if (!is_default) address.host_.append(":").append(port);
  }
  address.virtual_host_ = virtual_host;
  return address;
}

Target Address::target(std::string_view region, std::string_view key) const {
  Target target;
  target.host = host_;
  if (target.host.empty()) {
    target.host.append("s3.").append(region).append(".amazonaws.com");
    if (region.starts_with("cn-")) target.host.append(".cn");
  }
  target.path = "/";
  if (virtual_host_) {
    target.host.insert(0, bucket_ + ".");
  } else {
    target.path.append(percent_encode(bucket_, false));
    if (!key.empty()) target.path.push_back('/');
  }
  target.path.append(percent_encode(key, true));
  target.scheme_and_host = scheme_ + "://" + target.host;
  return target;
}

}  // namespace deltawire::s3
