#include "lab/bench/chain/wan_link.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <list>
#include <mutex>
#include <thread>
#include <vector>

namespace deltawire::cli {
namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

constexpr size_t kPieceBytes = 16 << 10;

class Socket {
 public:
  explicit Socket(int fd = -1) : fd_(fd) {}
  ~Socket() {
    if (fd_ >= 0) ::close(fd_);
  }
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  int get() const { return fd_; }
  void shut() const { ::shutdown(fd_, SHUT_RDWR); }

 private:
  int fd_;
};

// One direction of the line: tells when bytes that are put on it now have left it.
class Line {
 public:
  explicit Line(double bytes_per_second) : rate_(bytes_per_second) {}
  Clock::time_point send(size_t bytes) {
    const std::lock_guard lock(mutex_);
    free_ = std::max(free_, Clock::now()) +
            std::chrono::duration_cast<Clock::duration>(Seconds(double(bytes) / rate_));
    moved_ += bytes;
    return free_;
  }
  uint64_t moved() const { return moved_; }

 private:
  const double rate_;
  std::mutex mutex_;
  Clock::time_point free_{};
  std::atomic<uint64_t> moved_{0};
};

// How much of a connection's bytes may be unacknowledged: TCP's slow start, without losses.
class Congestion {
 public:
  Congestion(bool slow_start, size_t window, Clock::duration round_trip)
      : limit_(slow_start ? kInitial : window),
        initial_(limit_),
        window_(window),
        restart_after_(round_trip + std::chrono::milliseconds(200)) {}

  // Waits until `bytes` may be sent.
  void wait_for(size_t bytes) {
    while (true) {
      const Clock::time_point now = Clock::now();
      while (!sent_.empty() && sent_.front().acknowledged <= now) {
        unacknowledged_ -= sent_.front().bytes;
        limit_ = std::min(window_, limit_ + sent_.front().bytes);
        last_ = sent_.front().acknowledged;
        sent_.pop_front();
      }
      if (sent_.empty() && now - last_ > restart_after_) limit_ = initial_;
      if (sent_.empty() || unacknowledged_ + bytes <= limit_) return;
      std::this_thread::sleep_until(sent_.front().acknowledged);
    }
  }
  void sent(size_t bytes, Clock::time_point acknowledged) {
    unacknowledged_ += bytes;
    sent_.push_back({acknowledged, bytes});
  }

 private:
  static constexpr size_t kInitial = 10 * 1460;
  struct Sent {
    Clock::time_point acknowledged;
    size_t bytes;
  };
  size_t limit_;
  const size_t initial_, window_;
  const Clock::duration restart_after_;
  std::deque<Sent> sent_;
  size_t unacknowledged_ = 0;
  Clock::time_point last_ = Clock::now();
};

// Bytes on their way from one socket to another.
class Flight {
 public:
  // No more than a window is in flight: a sender cannot run ahead of the line for ever.
  explicit Flight(size_t window) : window_(window) {}

  bool push(std::vector<uint8_t> bytes, Clock::time_point due) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return closed_ || in_flight_ < window_; });
    if (closed_) return false;
    in_flight_ += bytes.size();
    pieces_.push_back({std::move(bytes), due});
    changed_.notify_all();
    return true;
  }
  // The next piece once it is due; none at the end.
  bool pop(std::vector<uint8_t>* bytes) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return closed_ || !pieces_.empty(); });
    if (pieces_.empty()) return false;
    const Clock::time_point due = pieces_.front().due;
    lock.unlock();
    std::this_thread::sleep_until(due);
    lock.lock();
    *bytes = std::move(pieces_.front().bytes);
    pieces_.pop_front();
    in_flight_ -= bytes->size();
    changed_.notify_all();
    return true;
  }
  void close() {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    changed_.notify_all();
  }

 private:
  struct Piece {
    std::vector<uint8_t> bytes;
    Clock::time_point due;
  };
  const size_t window_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Piece> pieces_;
  size_t in_flight_ = 0;
  bool closed_ = false;
};

bool write_all(int fd, const std::vector<uint8_t>& bytes) {
  for (size_t done = 0; done < bytes.size();) {
    const ssize_t n = ::send(fd, bytes.data() + done, bytes.size() - done, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    done += size_t(n);
  }
  return true;
}

}  // namespace

struct WanLink::Impl {
  sockaddr_in target{};
  Socket listener;
  uint16_t port = 0;
  Line up, down;
  const Clock::duration half;
  const size_t window;
  const bool slow_start;
  std::thread acceptor;
  std::atomic<bool> ending{false};
  std::mutex mutex;
  std::list<std::pair<Socket, Socket>> connections;
  std::vector<std::thread> threads;

  Impl(double rate, double round_trip, bool starts_slowly)
      : up(rate),
        down(rate),
        half(std::chrono::duration_cast<Clock::duration>(Seconds(round_trip / 2))),
        window(size_t(rate * round_trip * 2) + (1 << 20)),
        slow_start(starts_slowly) {}

  ~Impl() {
    ending = true;
    listener.shut();
    if (acceptor.joinable()) acceptor.join();
    {
      const std::lock_guard lock(mutex);
      for (auto& [a, b] : connections) {
        a.shut();
        b.shut();
      }
    }
    for (std::thread& thread : threads) thread.join();
  }

  void relay(int from, int to, Line* line, Clock::time_point opened) {
    Flight flight(window);
    std::thread writer([&] {
      std::vector<uint8_t> bytes;
      while (flight.pop(&bytes) && write_all(to, bytes)) {
      }
      flight.close();
      ::shutdown(to, SHUT_WR);
    });
    Congestion congestion(slow_start, window, 2 * half);
    while (true) {
      std::vector<uint8_t> bytes(kPieceBytes);
      const ssize_t n = ::recv(from, bytes.data(), bytes.size(), 0);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) break;
      bytes.resize(size_t(n));
      congestion.wait_for(bytes.size());
      const Clock::time_point due = std::max(line->send(bytes.size()), opened) + half;
      congestion.sent(bytes.size(), due + half);
      if (!flight.push(std::move(bytes), due)) break;
    }
    flight.close();
    writer.join();
  }

  void accept_all() {
    while (!ending) {
      Socket client(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (client.get() < 0) {
        if (errno == EINTR) continue;
        return;
      }
      Socket server(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
      if (::connect(server.get(), reinterpret_cast<const sockaddr*>(&target), sizeof target) != 0) {
        continue;  // the client sees its connection closed
      }
      const int on = 1;
      ::setsockopt(client.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
      ::setsockopt(server.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
      const int a = client.get(), b = server.get();
      const Clock::time_point opened = Clock::now() + 2 * half;
      const std::lock_guard lock(mutex);
      connections.emplace_back(std::move(client), std::move(server));
      threads.emplace_back([this, a, b, opened] { relay(a, b, &up, opened); });
      threads.emplace_back([this, a, b, opened] { relay(b, a, &down, opened); });
    }
  }
};

Result<WanLink> WanLink::start(const std::string& target, double bytes_per_second,
                               double round_trip_seconds, bool slow_start) {
  const size_t colon = target.rfind(':');
  auto impl = std::make_unique<Impl>(bytes_per_second, round_trip_seconds, slow_start);
  impl->target.sin_family = AF_INET;
  if (colon == std::string::npos ||
      ::inet_pton(AF_INET, target.substr(0, colon).c_str(), &impl->target.sin_addr) != 1) {
    return invalid_argument(target + ": expected an address and a port");
  }
  impl->target.sin_port = htons(uint16_t(std::atoi(target.c_str() + colon + 1)));
  impl->listener = Socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in own{};
  own.sin_family = AF_INET;
  own.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof own;
  if (::bind(impl->listener.get(), reinterpret_cast<sockaddr*>(&own), sizeof own) != 0 ||
      ::listen(impl->listener.get(), 128) != 0 ||
      ::getsockname(impl->listener.get(), reinterpret_cast<sockaddr*>(&own), &size) != 0) {
    return io_error(std::string("cannot listen: ") + std::strerror(errno));
  }
  impl->port = ntohs(own.sin_port);
  impl->acceptor = std::thread([raw = impl.get()] { raw->accept_all(); });
  return WanLink(std::move(impl));
}

WanLink::WanLink(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
WanLink::~WanLink() = default;
WanLink::WanLink(WanLink&&) noexcept = default;
uint16_t WanLink::port() const noexcept { return impl_->port; }
uint64_t WanLink::bytes_moved() const noexcept { return impl_->up.moved() + impl_->down.moved(); }

}  // namespace deltawire::cli
