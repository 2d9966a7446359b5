// AWS Signature Version 4, header form: what proves to the server who asks. Pure: no clock, no I/O.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"

namespace deltawire::s3 {

// Names and values, of headers or of a query, not encoded.
using Pairs = std::vector<std::pair<std::string, std::string>>;

struct Credentials {
  std::string access_key;
  std::string secret_key;
  std::string session_token;  // empty: a key that does not expire
  bool operator==(const Credentials&) const = default;
};

struct RequestToSign {
  std::string_view method;
  std::string_view path;            // percent-encoded, as it is sent
  std::string_view query;           // of canonical_query
  Pairs headers;                    // all are signed; "host" and "x-amz-date" among them
  std::string_view payload_sha256;  // hex
};

struct SigningScope {
  std::string region;
  std::string service = "s3";
  std::string time;  // of amz_time
};

// "a=1&b=": encoded and sorted, both what is signed and what is sent.
std::string canonical_query(const Pairs& query);
std::string sha256_hex(std::string_view text);
// "20150830T123600Z"
inline std::string amz_time(int64_t seconds_since_1970) {
  return utc_text(seconds_since_1970, "%Y%m%dT%H%M%SZ");
}

// The value of the Authorization header.
std::string authorization(const RequestToSign& request, const SigningScope& scope,
                          const Credentials& credentials);

}  // namespace deltawire::s3
