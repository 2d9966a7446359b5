// HTTP over kept connections: libcurl behind a small face. Knows nothing of S3.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "deltawire/status.h"
#include "deltawire/store.h"

namespace deltawire::s3 {

// A range of a Body, streamed: nothing of it is kept.
struct BodyRange {
  const Body* body = nullptr;
  uint64_t offset = 0, size = 0;
};

struct HttpAnswer {
  int status = 0;
  std::map<std::string, std::string, std::less<>> headers;  // names in lower case
  std::string text;  // the body, unless it went to `on_bytes`; at most kMaxTextBytes

  bool ok() const { return status >= 200 && status < 300; }
  std::string_view header(std::string_view name) const;  // "" when it is not there
};

struct HttpRequest {
  std::string method;  // GET, HEAD and DELETE have no body; PUT and POST always do
  std::string url;
  std::vector<std::string> headers;  // "name: value"
  BodyRange body;
  // A request on a kept connection that turns out to be dead is sent again on a fresh one. When it
  // may have been carried out the first time and that matters, this is false.
  bool may_resend = true;
  bool past_proxies = false;    // straight to the server, whatever the environment says
  double timeout_seconds = 60;  // from start to end
  double stall_seconds = 60;    // without a byte in either direction
  // Takes the body of a 2xx answer, in order; what it returns, if not Ok, ends the request and is
  // what perform() returns. Status and headers are complete before the first call.
  std::function<Status(const HttpAnswer& head, std::span<const uint8_t> bytes)> on_bytes;
  const std::atomic<bool>* cancelled = nullptr;  // looked at about once a second, or per piece
};

// A pool of easy handles, each with its own kept connection: a request runs in its caller's thread,
// so that bodies and sinks of parallel transfers are read and written in parallel too, there is no
// I/O thread to hand over to, and a fork finds no thread missing. Thread-safe.
class HttpPool {
 public:
  static constexpr size_t kMaxTextBytes = size_t{8} << 20;

  HttpPool(std::string ca_file, unsigned max_idle);
  ~HttpPool();
  HttpPool(const HttpPool&) = delete;
  HttpPool& operator=(const HttpPool&) = delete;

  // Any answer of the server, whatever its status, is a value. Unavailable: connection, deadline.
  // Io: a certificate that is not trusted. Cancelled: `cancelled` was set.
  Result<HttpAnswer> perform(const HttpRequest& request);

 private:
  void* take();
  void give_back(void* handle);

  const std::string ca_file_;
  const size_t max_idle_;
  std::mutex mutex_;
  std::vector<void*> idle_;  // the one used last is taken first: its connection is warm
};

}  // namespace deltawire::s3
