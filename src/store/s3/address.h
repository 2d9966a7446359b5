// From bucket and key to a URL: endpoints, path style and virtual-host style.
#pragma once

#include <string>
#include <string_view>

#include "deltawire/status.h"

namespace deltawire::s3 {

struct Target {
  std::string scheme_and_host;  // "https://host:port"
  std::string host;             // the Host header: the port stands there unless it is the scheme's
  std::string path;             // percent-encoded, begins with '/'
};

class Address {
 public:
  // `endpoint` "http(s)://host[:port]"; empty: AWS, where the host follows from the region and the
  // bucket is part of it unless it holds a dot, which no certificate covers. Whole or in part, an
  // endpoint with a user, a path or a query is InvalidArgument.
  static Result<Address> make(std::string_view endpoint, std::string_view bucket,
                              bool virtual_host);

  // `key` empty: the bucket itself.
  Target target(std::string_view region, std::string_view key) const;

 private:
  Address() = default;
  std::string scheme_, host_;  // host_ with its port; empty: AWS
  std::string bucket_;
  bool virtual_host_ = false;
};

// What may be the name of a bucket, and a region: both become part of host names and headers.
Status check_bucket(std::string_view bucket);
Status check_region(std::string_view region);

}  // namespace deltawire::s3
