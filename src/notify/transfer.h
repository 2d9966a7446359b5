// One HTTP request and its answer. The only place in this folder that knows libcurl.
#pragma once

#include <functional>
#include <string>

#include "base/secret.h"
#include "notify/http.h"

namespace deltawire {

struct HttpRequest {
  std::string method, url, body;
  Secret api_key;
  double timeout_seconds = 0;
  std::function<bool()> stop;  // asked at least once a second; empty: never
};

// Unavailable: no connection, no answer in time, or it broke off. Io: what will not get better
// (a certificate that is not trusted). Cancelled: `stop` said so. Unsupported: a build without
// libcurl.
Result<HttpReply> transfer(const HttpRequest& request);

}  // namespace deltawire
