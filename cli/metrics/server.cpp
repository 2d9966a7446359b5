#include "cli/metrics/server.h"

#include <utility>

namespace deltawire::cli {
namespace {

HttpAnswer metrics_text(std::string_view status, std::string body) {
  return {std::string(status), "text/plain; version=0.0.4; charset=utf-8", std::move(body)};
}

HttpAnswer answer_scrape(const HttpMessage& message, const std::function<std::string()>& render) {
  if (message.method != "GET" && message.method != "HEAD") {
    return metrics_text("405 Method Not Allowed", "only GET\n");
  }
  if (message.path == "/metrics") return metrics_text("200 OK", render());
  if (message.path == "/") return metrics_text("200 OK", "deltawire: see /metrics\n");
  return metrics_text("404 Not Found", "see /metrics\n");
}

}  // namespace

Result<std::unique_ptr<MetricsServer>> MetricsServer::start(const std::string& address,
                                                            uint16_t port,
                                                            std::function<std::string()> render) {
  HttpSettings settings;
  settings.name = "metrics";
  settings.refuse = [](std::string_view status, std::string_view why) {
    return metrics_text(status, std::string(why) + "\n");
  };
  const auto handler = [render = std::move(render)](const HttpMessage& message) {
    return answer_scrape(message, render);
  };
  DW_ASSIGN_OR_RETURN(auto server, HttpServer::start(address, port, std::move(settings), handler));
  return std::unique_ptr<MetricsServer>(new MetricsServer(std::move(server)));
}

}  // namespace deltawire::cli
