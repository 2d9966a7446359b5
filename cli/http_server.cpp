#include "cli/http_server.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <httplib.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <system_error>
#include <thread>

#include "tensor/text.h"

namespace deltawire::cli {
namespace {

using Clock = std::chrono::steady_clock;

// Of a request's line and headers together.
constexpr size_t kMaxHeadBytes = 64 << 10;
// What a client may still send after its answer: closing before would reset the connection, and the
// client might lose the answer.
constexpr size_t kMaxDrainedBytes = 1 << 20;
constexpr int kBacklog = 128;

bool is_address(const std::string& text) {
  in6_addr any{};
  return ::inet_pton(AF_INET, text.c_str(), &any) == 1 ||
         ::inet_pton(AF_INET6, text.c_str(), &any) == 1;
}

// A connection with an end: cpp-httplib's own limits are for each read, so that a client could keep
// its thread for hours, a byte at a time.
class Connection final : public httplib::Stream {
 public:
  Connection(int fd, const HttpSettings& settings, const std::atomic<bool>& stopping)
      : fd_(fd),
        settings_(settings),
        stopping_(stopping),
        left_bytes_(kMaxHeadBytes + settings.max_body_bytes),
        deadline_(Clock::now() + settings.max_seconds) {}

  bool is_readable() const override { return wait(POLLIN); }
  bool is_writable() const override { return wait(POLLOUT); }
  ssize_t read(char* to, size_t size) override {
    if (left_bytes_ == 0 || !wait(POLLIN)) return -1;
    const ssize_t n = ::recv(fd_, to, std::min(size, left_bytes_), 0);
    if (n > 0) left_bytes_ -= size_t(n);
    return n;
  }
  ssize_t write(const char* from, size_t size) override {
    answering_ = true;
    deadline_ = Clock::now() + settings_.max_seconds;
    return wait(POLLOUT) ? ::send(fd_, from, size, MSG_NOSIGNAL) : -1;
  }
  void get_remote_ip_and_port(std::string&, int&) const override {}
  void get_local_ip_and_port(std::string&, int&) const override {}
  socket_t socket() const override { return fd_; }

  // Reads what the client still sends, until it has seen the end of its answer.
  void drain() {
    ::shutdown(fd_, SHUT_WR);
    left_bytes_ = kMaxDrainedBytes;
    deadline_ = Clock::now() + settings_.max_seconds;
    answering_ = false;
    for (char buffer[4096]; read(buffer, sizeof buffer) > 0;) {
    }
  }

 private:
  // False: too late, or the server ends before there is a request to answer.
  bool wait(short events) const {
    constexpr int kSliceMs = 50;
    for (pollfd polled{fd_, events, 0}; Clock::now() < deadline_;) {
      if (stopping_ && !answering_) return false;
      if (::poll(&polled, 1, kSliceMs) > 0) return true;
    }
    return false;
  }

  const int fd_;
  const HttpSettings& settings_;
  const std::atomic<bool>& stopping_;
  size_t left_bytes_;
  Clock::time_point deadline_;
  bool answering_ = false;
};

// A thread for each connection, up to a limit; further ones wait in the listener's queue.
class Threads final : public httplib::TaskQueue {
 public:
  explicit Threads(size_t most) : most_(most) {}
  void enqueue(std::function<void()> work) override {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return num_ < most_; });
    ++num_;
    lock.unlock();
    const auto run = [this, work = std::move(work)] {
      work();
      const std::lock_guard ended(mutex_);
      --num_;
      changed_.notify_all();
    };
    try {
      std::thread(run).detach();
    } catch (const std::system_error&) {  // no thread to be had: the others wait
      run();
    }
  }
  void shutdown() override {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return num_ == 0; });
  }

 private:
  const size_t most_;
  std::mutex mutex_;
  std::condition_variable changed_;
  size_t num_ = 0;
};

}  // namespace

class HttpServer::Listener final : public httplib::Server {
 public:
  Listener(HttpSettings settings, HttpServer::Handler handler)
      : settings_(std::move(settings)), handler_(std::move(handler)) {
    new_task_queue = [this] { return new Threads(settings_.max_connections); };
    set_payload_max_length(settings_.max_body_bytes);
    // Not SO_REUSEPORT, cpp-httplib's own choice: a port in use must be an error.
    set_socket_options([](socket_t fd) {
      const int on = 1;
      ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
      ::fcntl(fd, F_SETFD, FD_CLOEXEC);
    });
    set_pre_routing_handler([this](const httplib::Request& request, httplib::Response& response) {
      const auto [status, why] = refusal_of(request);
      if (status == 0) return HandlerResponse::Unhandled;
      put(settings_.refuse(status, why), &response);
      return HandlerResponse::Handled;
    });
    set_error_handler([this](const httplib::Request&, httplib::Response& response) {
      if (response.body.empty())
        put(settings_.refuse(response.status, "malformed, or too large"), &response);
    });
    const auto answer = [this](const httplib::Request& request, httplib::Response& response) {
      put(handler_({request.method, request.path, request.get_header_value("Content-Type"),
                    request.body}),
          &response);
    };
    constexpr char kAny[] = ".*";
    Get(kAny, answer).Post(kAny, answer).Put(kAny, answer).Patch(kAny, answer);
    Delete(kAny, answer).Options(kAny, answer);
  }

  ~Listener() override {
    stopping_ = true;
    stop();
    if (thread_.joinable()) thread_.join();
  }

  // The port, or an errno below 0.
  int bind(const std::string& address, uint16_t port) {
    errno = 0;
    const int bound = port == 0                     ? bind_to_any_port(address)
                      : bind_to_port(address, port) ? port
                                                    : -1;
    // cpp-httplib's backlog is 5: who does not fit in is served seconds later.
    if (bound > 0 && ::listen(svr_sock_, kBacklog) == 0) return bound;
    return -(errno != 0 ? errno : EADDRNOTAVAIL);
  }

  void run() {
    thread_ = std::thread([this] {
      listen_after_bind();
      ended_ = true;
    });
    // stop() has no effect before this.
    while (!is_running() && !ended_) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }

 private:
  static void put(HttpAnswer answer, httplib::Response* response) {
    response->status = answer.status;
    response->set_content(answer.body, answer.content_type);
  }

  // Before a body is read: its length must be known and within the limit, and it must not grow when
  // it is unpacked. cpp-httplib would read a larger one to its end before it answers.
  std::pair<int, std::string> refusal_of(const httplib::Request& request) const {
    constexpr std::string_view kWithBody[] = {"POST", "PUT", "PATCH", "PRI"};
    const size_t num_lengths = request.get_header_value_count("Content-Length");
    const bool needs_length = std::find(std::begin(kWithBody), std::end(kWithBody),
                                        request.method) != std::end(kWithBody);
    if (request.has_header("Transfer-Encoding") || (needs_length && num_lengths == 0)) {
      return {411, "a body needs a Content-Length"};
    }
    uint64_t bytes = 0;
    if (num_lengths > 1 ||
        (num_lengths == 1 && !parse_number(request.get_header_value("Content-Length"), &bytes))) {
      return {400, "Content-Length is not a number"};
    }
    if (bytes > settings_.max_body_bytes) return {413, "the body is too large"};
    if (request.has_header("Content-Encoding")) return {415, "a body must not be compressed"};
    if (!request.ranges.empty()) return {416, "ranges are not supported"};
    return {0, ""};
  }

  bool process_and_close_socket(socket_t fd) override {
    ::fcntl(fd, F_SETFD, FD_CLOEXEC);
    Connection connection(fd, settings_, stopping_);
    bool closed = false;
    const bool answered = process_request(connection, true, closed, nullptr);
    if (answered) connection.drain();
    ::close(fd);
    return answered;
  }

  const HttpSettings settings_;
  const HttpServer::Handler handler_;
  std::atomic<bool> stopping_ = false, ended_ = false;
  std::thread thread_;
};

HttpServer::HttpServer(std::unique_ptr<Listener> listener) : listener_(std::move(listener)) {}
HttpServer::~HttpServer() = default;

Result<std::unique_ptr<HttpServer>> HttpServer::start(const std::string& address, uint16_t port,
                                                      HttpSettings settings, Handler handler) {
  const std::string place = settings.name + " on " + address + " port " + std::to_string(port);
  if (!is_address(address)) return invalid_argument(place + ": not an IPv4 or IPv6 address");
  auto listener = std::make_unique<Listener>(std::move(settings), std::move(handler));
  const int bound = listener->bind(address, port);
  if (bound < 0) return io_error(place + ": " + std::strerror(-bound));
  listener->run();
  std::unique_ptr<HttpServer> server(new HttpServer(std::move(listener)));
  server->port_ = uint16_t(bound);
  return server;
}

}  // namespace deltawire::cli
