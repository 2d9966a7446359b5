// An HTTP/1.1 server on cpp-httplib: a thread for each connection, TLS, and limits on connections,
// sizes and times.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "deltawire/status.h"

namespace deltawire {

struct HttpCall {
  std::string method, path, content_type, body;        // the path without what follows a '?'
  std::map<std::string, std::string> parameters = {};  // what follows it, decoded
  // "" if absent. `name` is case-insensitive. Valid only while the call is answered.
  std::function<std::string(const char* name)> header = {};
};

struct HttpReply {
  int status = 200;
  std::string content_type = {}, body = {};
  std::vector<std::pair<std::string, std::string>> headers = {};
  // Instead of `body`: this many bytes, read while they are sent. Returns as many bytes as fit into
  // `space`, there or elsewhere in memory. A failure closes the connection.
  uint64_t stream_size = 0;
  std::function<Result<std::span<const uint8_t>>(uint64_t offset, std::span<uint8_t> space)>
      read_stream = {};
  // Instead of both: returns the next text to send and may block; false ends the answer. Called for
  // as long as the client reads.
  std::function<bool(std::string* text)> next_text = {};
};

// PEM files.
struct TlsFiles {
  std::string certificate, key;
  std::string client_ca;  // if set, clients must have a certificate of this authority
};

struct HttpSettings {
  std::string name;  // for messages: "metrics"
  // Simultaneous connections. Further clients wait until one ends; idle kept connections are closed
  // for them.
  size_t max_connections = 32;
  size_t max_body_bytes = 0;
  // Time limit for a request to arrive, and for sending its answer without progress. Handlers have
  // no limit.
  std::chrono::seconds max_seconds{5};
  // Between two requests of a connection; 0: it has one.
  std::chrono::seconds keep_seconds{0};
  std::optional<TlsFiles> tls = {};
  // Called before a body is read; a reply rejects the call.
  std::function<std::optional<HttpReply>(const HttpCall&)> check = {};
  // Makes the reply for requests that the server itself rejects: malformed or too large.
  std::function<HttpReply(int status, const std::string& why)> refuse;
};

class HttpServer {
 public:
  // Called from many threads at once; HEAD as well as GET.
  using Handler = std::function<HttpReply(const HttpCall&)>;

  // `port` 0: any that is free. `address` is an IPv4 or IPv6 address. InvalidArgument: it is none;
  // Io: it cannot be bound, or a file of TLS cannot be used. Unsupported: without cpp-httplib.
  static Result<std::unique_ptr<HttpServer>> start(const std::string& address, uint16_t port,
                                                   HttpSettings settings, Handler handler);
  // Waits for running handlers and sends their answers; closes other connections.
  ~HttpServer();

  uint16_t port() const noexcept { return port_; }

 private:
  class Listener;
  explicit HttpServer(std::unique_ptr<Listener> listener);
  std::unique_ptr<Listener> listener_;
  uint16_t port_ = 0;
};

}  // namespace deltawire
