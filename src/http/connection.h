// One connection of a server, with TLS or without.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>
#include <string>

#include "deltawire/status.h"
#include "http/http_server.h"

struct ssl_ctx_st;
struct ssl_st;

namespace deltawire {

// Certificate and key of a server, for all of its connections.
class TlsContext {
 public:
  // Io: a file cannot be used.
  static Result<std::shared_ptr<TlsContext>> make(const TlsFiles& files);
  ~TlsContext();
  TlsContext(const TlsContext&) = delete;
  TlsContext& operator=(const TlsContext&) = delete;

  ssl_st* begin(int fd) const;  // null: no memory

 private:
  explicit TlsContext(ssl_ctx_st* context) : context_(context) {}
  ssl_ctx_st* const context_;
};

// Reads and writes with deadlines, so that a very slow client does not occupy its thread for hours.
// For one thread.
class Connection {
 public:
  // Owns `fd`. `tls` null: no TLS. `crowded`: other clients are waiting, so idle connections are
  // closed.
  Connection(int fd, const TlsContext* tls, const std::atomic<bool>& stopping,
             const std::atomic<bool>& crowded);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  int fd() const noexcept { return fd_; }
  // Waits up to `idle` for the next request to begin, which then has `seconds` and `max_bytes`.
  // False: the connection or the server has ended.
  bool expect_request(std::chrono::seconds idle, std::chrono::seconds seconds, size_t max_bytes);
  // From now on, until the next request, the server ends only after its answer.
  void begin_answer() { answering_ = true; }

  // The number of bytes; 0: the end; -1: a failure, a timeout or too many bytes.
  long read(char* to, size_t size);
  long write(const char* from, size_t size);
  bool is_readable() { return begin_ != end_ || wait(false); }
  bool is_writable() { return wait(true); }
  // Shuts down the sending side and reads what the client still sends. Closing at once would reset
  // the connection, and the client might lose the answer.
  void drain();

 private:
  using Clock = std::chrono::steady_clock;
  bool wait(bool to_write);
  bool shake_hands();
  long receive(char* to, size_t size);
  template <typename Move>
  long move(bool to_write, const Move& move_some);

  const int fd_;
  ssl_st* const tls_;
  const bool wants_tls_;
  const std::atomic<bool>&stopping_, &crowded_;
  std::chrono::seconds seconds_{5};
  Clock::time_point deadline_ = Clock::now() + std::chrono::seconds(5);
  size_t left_bytes_ = 0;
  bool answering_ = false, is_shaken_ = false;
  bool is_kept_ = false;  // after an answer, until the next request begins
  char buffer_[8192];
  size_t begin_ = 0, end_ = 0;  // of what is in the buffer
};

}  // namespace deltawire
