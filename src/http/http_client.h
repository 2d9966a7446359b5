// HTTP requests over kept connections. The only header between the project and libcurl.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "deltawire/status.h"

namespace deltawire {

// False: this build has no libcurl, and perform() returns Unsupported.
bool http_supported() noexcept;

struct HttpAnswer {
  int status = 0;
  std::map<std::string, std::string, std::less<>> headers = {};  // names in lower case
  std::string text = {};  // the body, unless it went to `on_bytes`; at most kMaxTextBytes

  bool ok() const noexcept { return status >= 200 && status < 300; }
  std::string_view header(std::string_view name) const;  // "" when it is not there
};

struct HttpRequest {
  std::string method = "GET";  // GET, HEAD and DELETE have no body; PUT and POST always do
  std::string url;
  std::vector<std::string> headers;  // "name: value"
  // The body is streamed: read_body fills `out` from `offset`, a retransmission asks again.
  uint64_t body_size = 0;
  std::function<Status(uint64_t offset, std::span<uint8_t> out)> read_body;
  // Whether a request on a kept connection that turns out to be dead is sent again on a new one.
  // False if executing it twice would matter.
  bool may_resend = true;
  bool use_proxy = true;        // that of the environment
  double timeout_seconds = 60;  // from start to end
  double stall_seconds = 0;     // without a byte in either direction; 0: no limit of its own
  // Receives the body of a 2xx answer in order. A failure ends the request and is returned by
  // perform(). Status and headers are complete before the first call.
  std::function<Status(const HttpAnswer& head, std::span<const uint8_t> bytes)> on_bytes;
  std::function<bool()> cancelled;  // called about once a second and for each chunk; empty: never

  void set_body(std::string_view text);  // must outlive the request
};

// A pool of handles, each with its own kept connection. A request runs in its caller's thread, so
// bodies of parallel transfers are read and written in parallel, and a fork loses no thread.
// Redirects are not followed. Thread-safe.
class HttpClient {
 public:
  static constexpr size_t kMaxTextBytes = size_t{8} << 20;

  // `ca_file`: trusted certificates beside the system's, PEM; empty: none. `max_idle`: connections
  // that are kept. `client_cert`: certificate and private key of this side, PEM; empty: none.
  explicit HttpClient(std::string ca_file = {}, unsigned max_idle = 1,
                      std::string client_cert = {});
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  // Any answer of the server, whatever its status, is a value. Unavailable: connection, deadline.
  // Io: a certificate that is not trusted. Corruption: text over kMaxTextBytes. Cancelled.
  Result<HttpAnswer> perform(const HttpRequest& request);

 private:
  void* take();
  void give_back(void* handle);

  const std::string ca_file_, client_cert_;
  const size_t max_idle_;
  std::mutex mutex_;
  std::vector<void*>
      idle_;  // the last used one is taken first, as its connection is most likely alive
};

// Returns true once `stop` has been true for `seconds`, for requests that must still be sent after
// a request to stop. Copies share the start time.
std::function<bool()> after_grace(std::function<bool()> stop, double seconds);

struct HttpUrl {
  std::string scheme;  // "http" or "https"
  std::string host;    // with its port, unless that is the scheme's
  std::string path;    // "" or begins with '/', without a '/' at its end
};
// InvalidArgument explains the defect without repeating the URL, which may contain a password.
// Passwords and queries are rejected.
Result<HttpUrl> parse_http_url(std::string_view url);

// Of a Date or Last-Modified header, in seconds since 1970; 0: not a time.
int64_t parse_http_date(std::string_view text);
inline std::string http_date(int64_t seconds) {
  return utc_text(seconds, "%a, %d %b %Y %H:%M:%S GMT");
}

// A server's text for one line of a message: at most `max_bytes`, with control characters replaced.
std::string printable(std::string_view text, size_t max_bytes = 300);

}  // namespace deltawire
