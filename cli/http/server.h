// A small HTTP server for a handful of clients: one thread moves bytes, a thread for each request
// makes its answer, and nobody may dawdle. One request for each connection.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>

#include "deltawire/status.h"

namespace deltawire::cli {

struct HttpMessage {
  std::string method, path, content_type, body;  // the path without what follows a '?'
};

struct HttpAnswer {
  std::string status = "200 OK";
  std::string content_type;
  std::string body;
};

struct HttpSettings {
  std::string name;  // for messages: "metrics"
  size_t max_connections = 32;
  size_t max_header_bytes = 8192;
  size_t max_body_bytes = 0;  // 0: bodies are not read
  // For a request to arrive, and again for its answer to be taken. What makes the answer keeps its
  // own time.
  std::chrono::seconds max_seconds{5};
  // How the server itself says no: to what is not HTTP, or too large.
  std::function<HttpAnswer(std::string_view status, std::string_view why)> refuse;
};

class HttpServer {
 public:
  // Called from many threads at once.
  using Handler = std::function<HttpAnswer(const HttpMessage&)>;

  // `port` 0: any that is free. `address` is an IPv4 or IPv6 address. InvalidArgument: no such
  // address; Io: it cannot be had.
  static Result<std::unique_ptr<HttpServer>> start(const std::string& address, uint16_t port,
                                                   HttpSettings settings, Handler handler);
  // Waits for answers that are being made, and sends them; other connections are cut.
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  uint16_t port() const noexcept { return port_; }

 private:
  HttpServer() = default;
  void run();

  int listener_ = -1;
  int stop_pipe_[2] = {-1, -1};
  int wake_pipe_[2] = {-1, -1};  // an answer is ready
  uint16_t port_ = 0;
  HttpSettings settings_;
  Handler handler_;
  std::thread thread_;
};

}  // namespace deltawire::cli
