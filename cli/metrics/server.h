// GET /metrics and nothing else.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "cli/http/server.h"
#include "deltawire/status.h"

namespace deltawire::cli {

class MetricsServer {
 public:
  // `port` 0: any that is free. `address` is an IPv4 or IPv6 address. `render` is called from a
  // thread of the server for every scrape. InvalidArgument: no such address; Io: it cannot be had.
  static Result<std::unique_ptr<MetricsServer>> start(const std::string& address, uint16_t port,
                                                      std::function<std::string()> render);

  uint16_t port() const noexcept { return server_->port(); }

 private:
  explicit MetricsServer(std::unique_ptr<HttpServer> server) : server_(std::move(server)) {}
  std::unique_ptr<HttpServer> server_;
};

}  // namespace deltawire::cli
