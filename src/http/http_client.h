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
  // A request on a kept connection that turns out to be dead is sent again on a new one. False
  // where the first attempt may have been carried out and that matters.
  bool may_resend = true;
  bool use_proxy = true;        // that of the environment
  double timeout_seconds = 60;  // from start to end
  double stall_seconds = 0;     // without a byte in either direction; 0: no limit of its own
  // Takes the body of a 2xx answer, in order; what it returns, if not Ok, ends the request and is
  // what perform() returns. Status and headers are complete before the first call.
  std::function<Status(const HttpAnswer& head, std::span<const uint8_t> bytes)> on_bytes;
  std::function<bool()> cancelled;  // asked about once a second, and for each chunk; empty: never

  void set_body(std::string_view text);  // which outlives the request
};

// A pool of handles, each with its own kept connection. A request runs in its caller's thread:
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
  std::vector<void*> idle_;  // the one used last is taken first: its connection is warm
};

// True once `stop` has been true for `seconds`: what must still be sent after a request to stop has
// so much time. Copies share the start.
std::function<bool()> after_grace(std::function<bool()> stop, double seconds);

struct HttpUrl {
  std::string scheme;  // "http" or "https"
  std::string host;    // with its port, unless that is the scheme's
  std::string path;    // "" or begins with '/', without a '/' at its end
};
// InvalidArgument says what is wrong, and does not repeat the URL: it may hold a password, which is
// refused like a query.
Result<HttpUrl> parse_http_url(std::string_view url);

// Of a Date or Last-Modified header, in seconds since 1970; 0: not a time.
int64_t parse_http_date(std::string_view text);
std::string http_date(int64_t seconds);

// Text of a server for one line of a message: at most `max_bytes`, control characters replaced.
std::string printable(std::string_view text, size_t max_bytes = 300);

}  // namespace deltawire
