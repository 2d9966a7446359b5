#include "cli/http/server.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "cli/http/request.h"

namespace deltawire::cli {
namespace {

using Clock = std::chrono::steady_clock;

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

std::string reply_text(const HttpAnswer& answer, bool head_only) {
  std::string reply = "HTTP/1.1 " + answer.status + "\r\nContent-Type: " + answer.content_type +
                      "\r\nContent-Length: " + std::to_string(answer.body.size()) +
                      "\r\nConnection: close\r\n\r\n";
  if (!head_only) reply.append(answer.body);
  return reply;
}

// An answer that is being made, on a thread of its own.
class Making {
 public:
  Making(const HttpServer::Handler& handler, HttpMessage message, int wake) {
    thread_ = std::thread([this, &handler, message = std::move(message), wake] {
      const HttpAnswer answer = handler(message);
      reply_ = reply_text(answer, message.method == "HEAD");
      ready_.store(true, std::memory_order_release);
      (void)!::write(wake, "", 1);
    });
  }
  ~Making() { thread_.join(); }

  // Once, when it is there.
  std::optional<std::string> take() {
    if (taken_ || !ready_.load(std::memory_order_acquire)) return {};
    taken_ = true;
    return std::move(reply_);
  }

 private:
  std::string reply_;
  std::atomic<bool> ready_{false};
  bool taken_ = false;
  std::thread thread_;
};

// One client: its request comes in, an answer is made, it goes out, then it is closed.
class Connection {
 public:
  Connection(int fd, const HttpSettings& settings)
      : fd_(fd), settings_(&settings), deadline_(Clock::now() + settings.max_seconds) {}
  ~Connection() { ::close(fd_); }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // What to wait for; nothing while the answer is made.
  pollfd interest() const {
    const bool waits = making_ && out_.empty() && !refused_;
    return {waits ? -1 : fd_, short(out_.empty() ? POLLIN : POLLOUT), 0};
  }

  // Its request is there: somebody waits for an answer.
  bool asked() const { return making_ != nullptr; }

  // False: done with it.
  bool advance(bool ready, const HttpServer::Handler& handler, int wake) {
    if (making_ && out_.empty()) {
      if (auto reply = making_->take()) begin_to_send(std::move(*reply));
    }
    if (making_ && out_.empty()) return true;
    return Clock::now() < deadline_ && (!ready || (!out_.empty() ? send()
                                                   : refused_    ? drain()
                                                                 : receive(handler, wake)));
  }

 private:
  void begin_to_send(std::string reply) {
    out_ = std::move(reply);
    deadline_ = Clock::now() + settings_->max_seconds;
  }

  void refuse(std::string_view status, std::string_view why) {
    refused_ = true;
    begin_to_send(reply_text(settings_->refuse(status, why), false));
  }

  bool receive(const HttpServer::Handler& handler, int wake) {
    char buffer[4096];
    const ssize_t n = ::recv(fd_, buffer, sizeof buffer, 0);
    if (n < 0) return errno == EAGAIN || errno == EINTR;
    if (n == 0) return false;
    in_.append(buffer, size_t(n));
    if (!head_) {
      const size_t end = in_.find("\r\n\r\n");
      if (end == std::string::npos) {
        if (in_.size() >= settings_->max_header_bytes) {
          refuse("431 Request Header Fields Too Large", "too large");
        }
        return true;
      }
      head_ =
          parse_request_head(std::string_view(in_).substr(0, end + 4), settings_->max_body_bytes);
      in_.erase(0, end + 4);
      if (!head_->refusal.empty()) {
        refuse(head_->refusal, head_->why);
        return true;
      }
    }
    if (in_.size() < head_->body_bytes) return true;
    head_->message.body = in_.substr(0, head_->body_bytes);
    try {
      making_ = std::make_unique<Making>(handler, std::move(head_->message), wake);
    } catch (const std::system_error&) {  // no thread to be had
      refuse("503 Service Unavailable", "too much to do");
    }
    return true;
  }

  bool send() {
    const ssize_t n = ::send(fd_, out_.data(), out_.size(), MSG_NOSIGNAL);
    if (n < 0) return errno == EAGAIN || errno == EINTR;
    out_.erase(0, size_t(n));
    if (!out_.empty()) return true;
    // Who is refused may still be sending, and reads the answer only then.
    if (refused_) ::shutdown(fd_, SHUT_WR);
    return drain() && refused_;
  }

  // Closing with unread bytes would reset the connection, and the client might lose its answer.
  // False: it has ended.
  bool drain() {
    char buffer[4096];
    for (size_t i = 0; i < 16; ++i) {
      const ssize_t n = ::recv(fd_, buffer, sizeof buffer, 0);
      if (n < 0) return errno == EAGAIN || errno == EINTR;
      if (n == 0) return false;
    }
    return true;
  }

  const int fd_;
  const HttpSettings* settings_;
  Clock::time_point deadline_;
  std::string in_, out_;
  std::optional<RequestHead> head_;
  bool refused_ = false;  // before all of the request was read
  std::unique_ptr<Making> making_;
};

}  // namespace

Result<std::unique_ptr<HttpServer>> HttpServer::start(const std::string& address, uint16_t port,
                                                      HttpSettings settings, Handler handler) {
  const auto where = parse_address(address, port);
  const std::string place = settings.name + " on " + address + " port " + std::to_string(port);
  if (!where) return invalid_argument(place + ": not an IPv4 or IPv6 address");
  std::unique_ptr<HttpServer> server(new HttpServer);
  server->settings_ = std::move(settings);
  server->handler_ = std::move(handler);
  server->listener_ =
      ::socket(where->storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  const int on = 1;
  ::setsockopt(server->listener_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (::bind(server->listener_, reinterpret_cast<const sockaddr*>(&where->storage), where->size) !=
          0 ||
      ::listen(server->listener_, 16) != 0 || ::pipe2(server->stop_pipe_, O_CLOEXEC) != 0 ||
      ::pipe2(server->wake_pipe_, O_CLOEXEC | O_NONBLOCK) != 0) {
    return io_error(place + ": " + std::strerror(errno));
  }
  server->port_ = bound_port(server->listener_);
  server->thread_ = std::thread([raw = server.get()] { raw->run(); });
  return server;
}

HttpServer::~HttpServer() {
  if (thread_.joinable()) {
    ::close(std::exchange(stop_pipe_[1], -1));  // the other end becomes readable
    thread_.join();
  }
  for (const int fd : {listener_, stop_pipe_[0], stop_pipe_[1], wake_pipe_[0], wake_pipe_[1]}) {
    if (fd >= 0) ::close(fd);
  }
}

void HttpServer::run() {
  std::vector<std::unique_ptr<Connection>> connections;
  for (bool ends = false; !ends || !connections.empty();) {
    // Who comes when all places are taken waits in the listener's queue.
    const bool room = !ends && connections.size() < settings_.max_connections;
    std::vector<pollfd> polled = {{ends ? -1 : stop_pipe_[0], POLLIN, 0},
                                  {wake_pipe_[0], POLLIN, 0},
                                  {listener_, short(room ? POLLIN : 0), 0}};
    for (const auto& connection : connections) polled.push_back(connection->interest());
    ::poll(polled.data(), polled.size(), connections.empty() ? -1 : 500);
    ends = ends || polled[0].revents != 0;
    char woken[64];
    while (polled[1].revents != 0 && ::read(wake_pipe_[0], woken, sizeof woken) > 0) {
    }
    std::vector<std::unique_ptr<Connection>> kept;
    for (size_t i = 0; i < connections.size(); ++i) {
      const bool ready = polled[i + 3].revents != 0;
      if (ends && !connections[i]->asked()) continue;
      if (!connections[i]->advance(ready, handler_, wake_pipe_[1])) continue;
      kept.push_back(std::move(connections[i]));
    }
    connections = std::move(kept);
    if (ends || (polled[2].revents & POLLIN) == 0) continue;
    const int fd = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd >= 0) {
      connections.push_back(std::make_unique<Connection>(fd, settings_));
    } else {  // out of descriptors, most likely: not at full speed until there are some
      ::poll(polled.data(), 1, 200);
    }
  }
}

}  // namespace deltawire::cli
