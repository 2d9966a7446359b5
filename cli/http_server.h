// An HTTP server for a handful of clients, on cpp-httplib: a thread for each connection, one
// request for each connection, and limits on sizes and times.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "deltawire/status.h"

namespace deltawire::cli {

struct HttpMessage {
  std::string method, path, content_type, body;  // the path without what follows a '?'
};

struct HttpAnswer {
  int status = 200;
  std::string content_type, body;
};

struct HttpSettings {
  std::string name;  // for messages: "metrics"
  // At the same time; further clients wait until one of these is served or cut.
  size_t max_connections = 32;
  size_t max_body_bytes = 0;
  // For a request to arrive, and without progress while its answer is sent. The handler keeps its
  // own time.
  std::chrono::seconds max_seconds{5};
  // How the server itself refuses a request: malformed, too large.
  std::function<HttpAnswer(int status, const std::string& why)> refuse;
};

class HttpServer {
 public:
  // Called from many threads at once; HEAD as well as GET.
  using Handler = std::function<HttpAnswer(const HttpMessage&)>;

  // `port` 0: any that is free. `address` is an IPv4 or IPv6 address. InvalidArgument: it is none;
  // Io: it cannot be bound.
  static Result<std::unique_ptr<HttpServer>> start(const std::string& address, uint16_t port,
                                                   HttpSettings settings, Handler handler);
  // Waits for handlers that run, and sends their answers; other connections are cut.
  ~HttpServer();

  uint16_t port() const noexcept { return port_; }

 private:
  class Listener;
  explicit HttpServer(std::unique_ptr<Listener> listener);
  std::unique_ptr<Listener> listener_;
  uint16_t port_ = 0;
};

}  // namespace deltawire::cli
