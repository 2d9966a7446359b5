#include "cli/metrics/server.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

namespace deltawire::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kMaxConnections = 32;
constexpr size_t kMaxRequestBytes = 8192;
constexpr std::chrono::seconds kMaxSeconds{5};  // from accept to the last byte

struct Address {
  sockaddr_storage storage{};
  socklen_t size = 0;
};

std::optional<Address> parse_address(const std::string& text, uint16_t port) {
  Address address;
  auto* v4 = reinterpret_cast<sockaddr_in*>(&address.storage);
  auto* v6 = reinterpret_cast<sockaddr_in6*>(&address.storage);
  if (::inet_pton(AF_INET, text.c_str(), &v4->sin_addr) == 1) {
    v4->sin_family = AF_INET;
    v4->sin_port = htons(port);
    address.size = sizeof *v4;
  } else if (::inet_pton(AF_INET6, text.c_str(), &v6->sin6_addr) == 1) {
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons(port);
    address.size = sizeof *v6;
  } else {
    return std::nullopt;
  }
  return address;
}

uint16_t bound_port(int fd) {
  Address address;
  address.size = sizeof address.storage;
  ::getsockname(fd, reinterpret_cast<sockaddr*>(&address.storage), &address.size);
  return ntohs(address.storage.ss_family == AF_INET6
                   ? reinterpret_cast<sockaddr_in6*>(&address.storage)->sin6_port
                   : reinterpret_cast<sockaddr_in*>(&address.storage)->sin_port);
}

std::string reply_text(std::string_view status, std::string_view body, bool head_only) {
  std::string reply = "HTTP/1.1 " + std::string(status) +
                      "\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8"
                      "\r\nContent-Length: " +
                      std::to_string(body.size()) + "\r\nConnection: close\r\n\r\n";
  if (!head_only) reply.append(body);
  return reply;
}

// The answer to a request whose header has arrived whole.
std::string answer(std::string_view request, const std::function<std::string()>& render) {
  const std::string_view line = request.substr(0, request.find("\r\n"));
  const size_t space = line.find(' '), next = line.find(' ', space + 1);
  if (space == std::string_view::npos || next == std::string_view::npos ||
      !line.substr(next + 1).starts_with("HTTP/1.")) {
    return reply_text("400 Bad Request", "not HTTP\n", false);
  }
  const std::string_view method = line.substr(0, space);
  const std::string_view target = line.substr(space + 1, next - space - 1);
  const bool head_only = method == "HEAD";
  if (method != "GET" && !head_only) {
    return reply_text("405 Method Not Allowed", "only GET\n", false);
  }
  const std::string_view path = target.substr(0, target.find('?'));
  if (path == "/metrics") return reply_text("200 OK", render(), head_only);
  if (path == "/") return reply_text("200 OK", "deltawire: see /metrics\n", head_only);
  return reply_text("404 Not Found", "see /metrics\n", head_only);
}

// One client: its request comes in, then its answer goes out, then it is closed.
class Connection {
 public:
  explicit Connection(int fd) : fd_(fd), deadline_(Clock::now() + kMaxSeconds) {}
  ~Connection() {
    if (fd_ >= 0) ::close(fd_);
  }
  Connection(Connection&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)),
        deadline_(other.deadline_),
        in_(std::move(other.in_)),
        out_(std::move(other.out_)) {}
  Connection& operator=(Connection&& other) noexcept {
    std::swap(fd_, other.fd_);
    std::swap(deadline_, other.deadline_);
    std::swap(in_, other.in_);
    std::swap(out_, other.out_);
    return *this;
  }

  pollfd interest() const { return {fd_, short(out_.empty() ? POLLIN : POLLOUT), 0}; }
  bool late() const { return Clock::now() >= deadline_; }

  // False: done with it.
  bool advance(const std::function<std::string()>& render) {
    return out_.empty() ? receive(render) : send();
  }

 private:
  bool receive(const std::function<std::string()>& render) {
    char buffer[4096];
    const ssize_t n = ::recv(fd_, buffer, sizeof buffer, 0);
    if (n < 0) return errno == EAGAIN || errno == EINTR;
    if (n == 0) return false;
    in_.append(buffer, size_t(n));
    if (in_.find("\r\n\r\n") != std::string::npos) {
      out_ = answer(in_, render);
    } else if (in_.size() >= kMaxRequestBytes) {
      out_ = reply_text("431 Request Header Fields Too Large", "too large\n", false);
    }
    return true;
  }

  bool send() {
    const ssize_t n = ::send(fd_, out_.data(), out_.size(), MSG_NOSIGNAL);
    if (n < 0) return errno == EAGAIN || errno == EINTR;
    out_.erase(0, size_t(n));
    if (out_.empty()) drain();
    return !out_.empty();
  }

  // Closing with unread bytes would reset the connection, and the client might lose its answer.
  void drain() {
    char buffer[4096];
    for (size_t i = 0; i < kMaxRequestBytes / sizeof buffer; ++i) {
      if (::recv(fd_, buffer, sizeof buffer, 0) <= 0) return;
    }
  }

  int fd_;
  Clock::time_point deadline_;
  std::string in_, out_;
};

}  // namespace

Result<std::unique_ptr<MetricsServer>> MetricsServer::start(const std::string& address,
                                                            uint16_t port,
                                                            std::function<std::string()> render) {
  const auto where = parse_address(address, port);
  const std::string place = "metrics on " + address + " port " + std::to_string(port);
  if (!where) return invalid_argument(place + ": not an IPv4 or IPv6 address");
  std::unique_ptr<MetricsServer> server(new MetricsServer);
  server->render_ = std::move(render);
  server->listener_ =
      ::socket(where->storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  const int on = 1;
  ::setsockopt(server->listener_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (::bind(server->listener_, reinterpret_cast<const sockaddr*>(&where->storage), where->size) !=
          0 ||
      ::listen(server->listener_, 16) != 0 || ::pipe2(server->stop_pipe_, O_CLOEXEC) != 0) {
    return io_error(place + ": " + std::strerror(errno));
  }
  server->port_ = bound_port(server->listener_);
  server->thread_ = std::thread([raw = server.get()] { raw->run(); });
  return server;
}

MetricsServer::~MetricsServer() {
  if (thread_.joinable()) {
    ::close(std::exchange(stop_pipe_[1], -1));  // the other end becomes readable
    thread_.join();
  }
  for (const int fd : {listener_, stop_pipe_[0], stop_pipe_[1]}) {
    if (fd >= 0) ::close(fd);
  }
}

void MetricsServer::run() {
  std::vector<Connection> connections;
  for (;;) {
    // Who comes when all places are taken waits in the listener's queue.
    const bool room = connections.size() < kMaxConnections;
    std::vector<pollfd> polled = {{stop_pipe_[0], POLLIN, 0},
                                  {listener_, short(room ? POLLIN : 0), 0}};
    for (const Connection& connection : connections) polled.push_back(connection.interest());
    ::poll(polled.data(), polled.size(), connections.empty() ? -1 : 500);
    if (polled[0].revents != 0) return;

    std::vector<Connection> kept;
    for (size_t i = 0; i < connections.size(); ++i) {
      const bool ready = polled[i + 2].revents != 0;
      if (connections[i].late() || (ready && !connections[i].advance(render_))) continue;
      kept.push_back(std::move(connections[i]));
    }
    connections = std::move(kept);
    if ((polled[1].revents & POLLIN) == 0) continue;
    const int fd = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd >= 0) {
      connections.emplace_back(fd);
    } else {  // out of descriptors, most likely: not at full speed until there are some
      ::poll(polled.data(), 1, 200);
    }
  }
}

}  // namespace deltawire::cli
