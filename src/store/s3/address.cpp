#include "store/s3/address.h"

#include "base/text.h"
#include "http/http_client.h"
#include "store/s3/sigv4.h"

#include <algorithm>

namespace deltawire::s3 {
namespace {}  // namespace

Status check_bucket(std::string_view bucket) {
  if (bucket.size() >= 3 && bucket.size() <= 63 && bucket.front() != '.' && bucket.back() != '.' &&
      bucket.find("..") == bucket.npos && std::all_of(bucket.begin(), bucket.end(), is_name_char)) {
    return {};
  }
  return invalid_argument("not the name of a bucket: 3 to 63 letters, digits, '-' and '.'");
}

Status check_region(std::string_view region) {
  if (!region.empty() && region.size() <= 63 && region.find('.') == region.npos &&
      std::all_of(region.begin(), region.end(), is_name_char)) {
    return {};
  }
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
  Result<HttpUrl> url = parse_http_url(endpoint);
  // The text may contain a password, so it is not shown.
  if (!url.ok()) return std::move(url).status().at("the endpoint must be http(s)://HOST[:PORT]");
  if (!url->path.empty()) {
    return invalid_argument("the endpoint must be http(s)://HOST[:PORT]: it has a path");
  }
  address.scheme_ = url->scheme;
  address.host_ = url->host;
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
