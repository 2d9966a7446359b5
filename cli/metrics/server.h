// GET /metrics and nothing else: one thread, a few connections, none of which may dawdle.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "deltawire/status.h"

namespace deltawire::cli {

class MetricsServer {
 public:
  // `port` 0: any that is free. `address` is an IPv4 or IPv6 address. `render` is called from the
  // server's thread for every scrape. InvalidArgument: no such address; Io: it cannot be had.
  static Result<std::unique_ptr<MetricsServer>> start(const std::string& address, uint16_t port,
                                                      std::function<std::string()> render);
  ~MetricsServer();  // connections are cut
  MetricsServer(const MetricsServer&) = delete;
  MetricsServer& operator=(const MetricsServer&) = delete;

  uint16_t port() const noexcept { return port_; }

 private:
  MetricsServer() = default;
  void run();

  int listener_ = -1;
  int stop_pipe_[2] = {-1, -1};
  uint16_t port_ = 0;
  std::function<std::string()> render_;
  std::thread thread_;
};

}  // namespace deltawire::cli
