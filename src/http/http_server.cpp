#include "http/http_server.h"

#ifdef DELTAWIRE_HAVE_HTTPLIB

#include <arpa/inet.h>
#include <fcntl.h>
#include <httplib.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <ctime>
#include <mutex>
#include <system_error>
#include <thread>

#include "base/bytes.h"
#include "base/text.h"
#include "http/connection.h"
#include "http/http_client.h"

namespace deltawire {
namespace {

// Of a request's line and headers together.
constexpr size_t kMaxHeadBytes = 64 << 10;
constexpr size_t kStreamBytes = 256 << 10;  // read at once
constexpr int kBacklog = 512;

bool is_address(const std::string& text) {
  in6_addr any{};
  return ::inet_pton(AF_INET, text.c_str(), &any) == 1 ||
         ::inet_pton(AF_INET6, text.c_str(), &any) == 1;
}

// As cpp-httplib sees a connection.
class Stream final : public httplib::Stream {
 public:
  explicit Stream(Connection* connection) : connection_(*connection) {}
  bool is_readable() const override { return connection_.is_readable(); }
  bool is_writable() const override { return connection_.is_writable(); }
  ssize_t read(char* to, size_t size) override { return connection_.read(to, size); }
  ssize_t write(const char* from, size_t size) override {
    const ssize_t n = connection_.write(from, size);
    return n > 0 ? n : -1;
  }
  void get_remote_ip_and_port(std::string&, int&) const override {}
  void get_local_ip_and_port(std::string&, int&) const override {}
  socket_t socket() const override { return connection_.fd(); }

 private:
  Connection& connection_;
};

// A thread for each connection, up to a limit; further ones wait in the listener's queue.
class Threads final : public httplib::TaskQueue {
 public:
  Threads(size_t most, std::atomic<bool>* crowded) : most_(most), crowded_(*crowded) {}
  void enqueue(std::function<void()> work) override {
    std::unique_lock lock(mutex_);
    crowded_ = num_ >= most_;
    changed_.wait(lock, [this] { return num_ < most_; });
    crowded_ = false;
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
    } catch (const std::system_error&) {  // no thread available: the others wait
      run();
    }
  }
  void shutdown() override {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return num_ == 0; });
  }

 private:
  const size_t most_;
  std::atomic<bool>& crowded_;  // one waits
  std::mutex mutex_;
  std::condition_variable changed_;
  size_t num_ = 0;
};

HttpCall call_of(const httplib::Request& request) {
  HttpCall call{request.method, request.path, request.get_header_value("Content-Type"),
                request.body};
  call.parameters.insert(request.params.begin(), request.params.end());
  call.header = [&request](const char* name) { return request.get_header_value(name); };
  return call;
}

void put(HttpReply reply, httplib::Response* response) {
  response->status = reply.status;
  response->set_header("Date", http_date(std::time(nullptr)));
  for (const auto& [name, value] : reply.headers) response->set_header(name, value);
  if (reply.next_text) {
    const auto send = [next = std::move(reply.next_text)](size_t, httplib::DataSink& sink) {
      std::string text;
      if (!next(&text)) {
        sink.done();
        return true;
      }
      return sink.write(text.data(), text.size());
    };
    response->set_chunked_content_provider(reply.content_type, send);
    return;
  }
  if (!reply.read_stream || reply.stream_size == 0) {
    response->set_content(reply.body, reply.content_type);
    return;
  }
  response->set_content_provider(
      reply.stream_size, reply.content_type,
      [read = std::move(reply.read_stream)](size_t offset, size_t length, httplib::DataSink& sink) {
        // Reused for the next answer; a thread has one connection.
        static thread_local std::vector<uint8_t> buffer(kStreamBytes);
        const Result<Bytes> some = read(offset, {buffer.data(), std::min(length, kStreamBytes)});
        return some.ok() && sink.write(reinterpret_cast<const char*>(some->data()), some->size());
      });
}

}  // namespace

class HttpServer::Listener final : public httplib::Server {
 public:
  Listener(HttpSettings settings, std::shared_ptr<TlsContext> tls, HttpServer::Handler handler)
      : settings_(std::move(settings)), tls_(std::move(tls)), handler_(std::move(handler)) {
    new_task_queue = [this] { return new Threads(settings_.max_connections, &crowded_); };
    set_payload_max_length(settings_.max_body_bytes);
    // Not SO_REUSEPORT, cpp-httplib's own choice: a port in use must be an error.
    set_socket_options([](socket_t fd) {
      const int on = 1;
      ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
      ::fcntl(fd, F_SETFD, FD_CLOEXEC);
    });
    set_tcp_nodelay(true);
    set_pre_routing_handler([this](const httplib::Request& request, httplib::Response& response) {
      std::optional<HttpReply> refused = refusal_of(request);
      if (!refused && settings_.check) refused = settings_.check(call_of(request));
      if (!refused) return HandlerResponse::Unhandled;
      refused->headers.emplace_back("Connection", "close");  // its body may not have been read
      put(std::move(*refused), &response);
      return HandlerResponse::Handled;
    });
    set_error_handler([this](const httplib::Request&, httplib::Response& response) {
      if (response.body.empty() && !response.has_header("Content-Type"))
        put(settings_.refuse(response.status, "malformed, or too large"), &response);
    });
    const auto answer = [this](const httplib::Request& request, httplib::Response& response) {
      put(handler_(call_of(request)), &response);
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
    // cpp-httplib's backlog is 5; clients beyond it would be served seconds later.
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
  // Checks a request before its body is read: the length must be known and within the limit, and
  // the body must not be compressed. cpp-httplib would read a larger body to its end before it
  // answers.
  std::optional<HttpReply> refusal_of(const httplib::Request& request) const {
    constexpr std::string_view kWithBody[] = {"POST", "PUT", "PATCH", "PRI"};
    const size_t num_lengths = request.get_header_value_count("Content-Length");
    const bool needs_length = std::find(std::begin(kWithBody), std::end(kWithBody),
                                        request.method) != std::end(kWithBody);
    if (request.has_header("Transfer-Encoding") || (needs_length && num_lengths == 0)) {
      return settings_.refuse(411, "a body needs a Content-Length");
    }
    uint64_t bytes = 0;
    if (num_lengths > 1 ||
        (num_lengths == 1 && !parse_number(request.get_header_value("Content-Length"), &bytes))) {
      return settings_.refuse(400, "Content-Length is not a number");
    }
    if (bytes > settings_.max_body_bytes) return settings_.refuse(413, "the body is too large");
    if (bytes > 0 && !needs_length) return settings_.refuse(400, "a body is not expected");
    if (request.has_header("Content-Encoding")) {
      return settings_.refuse(415, "a body must not be compressed");
    }
    return std::nullopt;
  }

  bool process_and_close_socket(socket_t fd) override {
    Connection connection(fd, tls_.get(), stopping_, crowded_);
    Stream stream(&connection);
    const bool keeps = settings_.keep_seconds.count() > 0;
    bool answered = false, closed = false;
    while (!closed && connection.expect_request(
                          answered ? settings_.keep_seconds : settings_.max_seconds,
                          settings_.max_seconds, kMaxHeadBytes + settings_.max_body_bytes)) {
      // The handler serves ranges, because cpp-httplib does not check them. Compressing an answer
      // would take longer than sending it.
      answered = process_request(stream, !keeps, closed, [](httplib::Request& request) {
        request.ranges.clear();
        request.headers.erase("Accept-Encoding");
      });
      if (!answered || !keeps) break;
    }
    if (answered) connection.drain();
    return answered;
  }

  const HttpSettings settings_;
  const std::shared_ptr<TlsContext> tls_;
  const HttpServer::Handler handler_;
  std::atomic<bool> stopping_ = false, ended_ = false, crowded_ = false;
  std::thread thread_;
};

HttpServer::HttpServer(std::unique_ptr<Listener> listener) : listener_(std::move(listener)) {}
HttpServer::~HttpServer() = default;

Result<std::unique_ptr<HttpServer>> HttpServer::start(const std::string& address, uint16_t port,
                                                      HttpSettings settings, Handler handler) {
  const std::string place = settings.name + " on " + address + " port " + std::to_string(port);
  if (!is_address(address)) return invalid_argument(place + ": not an IPv4 or IPv6 address");
  std::shared_ptr<TlsContext> tls;
  if (settings.tls) {
    DW_ASSIGN_OR_RETURN(tls, TlsContext::make(*settings.tls));
  }
  auto listener =
      std::make_unique<Listener>(std::move(settings), std::move(tls), std::move(handler));
  const int bound = listener->bind(address, port);
  if (bound < 0) return io_error(place + ": " + std::strerror(-bound));
  listener->run();
  std::unique_ptr<HttpServer> server(new HttpServer(std::move(listener)));
  server->port_ = uint16_t(bound);
  return server;
}

}  // namespace deltawire

#else

namespace deltawire {

class HttpServer::Listener {};
HttpServer::~HttpServer() = default;
Result<std::unique_ptr<HttpServer>> HttpServer::start(const std::string&, uint16_t, HttpSettings,
                                                      Handler) {
  return unsupported("this build of deltawire has no HTTP server (cpp-httplib was not found)");
}

}  // namespace deltawire

#endif
