#include "http/connection.h"

#include <fcntl.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace deltawire {
namespace {

constexpr size_t kMaxDrainedBytes = 1 << 20;
// Clients that read an answer more slowly are disconnected.
constexpr double kLeastBytesPerSecond = 16 << 10;

std::string tls_error() {
  char text[256] = "unknown";
  if (const unsigned long code = ERR_get_error()) ERR_error_string_n(code, text, sizeof text);
  ERR_clear_error();
  return text;
}

}  // namespace

Result<std::shared_ptr<TlsContext>> TlsContext::make(const TlsFiles& files) {
  SSL_CTX* const context = SSL_CTX_new(TLS_server_method());
  if (context == nullptr) return out_of_memory("TLS: " + tls_error());
  std::shared_ptr<TlsContext> made(new TlsContext(context));
  SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
  SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  if (SSL_CTX_use_certificate_chain_file(context, files.certificate.c_str()) != 1) {
    return io_error(files.certificate + ": not a usable certificate: " + tls_error());
  }
  if (SSL_CTX_use_PrivateKey_file(context, files.key.c_str(), SSL_FILETYPE_PEM) != 1 ||
      SSL_CTX_check_private_key(context) != 1) {
    return io_error(files.key + ": not the certificate's private key: " + tls_error());
  }
  if (!files.client_ca.empty()) {
    if (SSL_CTX_load_verify_locations(context, files.client_ca.c_str(), nullptr) != 1) {
      return io_error(files.client_ca + ": not a usable certificate: " + tls_error());
    }
    SSL_CTX_set_client_CA_list(context, SSL_load_client_CA_file(files.client_ca.c_str()));
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  }
  return made;
}

TlsContext::~TlsContext() { SSL_CTX_free(context_); }

SSL* TlsContext::begin(int fd) const {
  SSL* const tls = SSL_new(context_);
  if (tls == nullptr) return nullptr;
  SSL_set_fd(tls, fd);
  SSL_set_accept_state(tls);
  return tls;
}

Connection::Connection(int fd, const TlsContext* tls, const std::atomic<bool>& stopping,
                       const std::atomic<bool>& crowded)
    : fd_(fd),
      tls_(tls == nullptr ? nullptr : tls->begin(fd)),
      wants_tls_(tls != nullptr),
      stopping_(stopping),
      crowded_(crowded) {
  ::fcntl(fd, F_SETFD, FD_CLOEXEC);
  ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK);
}

Connection::~Connection() {
  SSL_free(tls_);
  ::close(fd_);
}

bool Connection::expect_request(std::chrono::seconds idle, std::chrono::seconds seconds,
                                size_t max_bytes) {
  seconds_ = seconds;
  is_kept_ = answering_;
  answering_ = false;
  left_bytes_ = 1;
  deadline_ = Clock::now() + idle;
  if (begin_ == end_) {
    if (!shake_hands()) return false;
    const long n = receive(buffer_, 1);  // with TLS what is readable may be no data
    if (n <= 0) return false;
    begin_ = 0, end_ = 1;
  }
  is_kept_ = false;
  left_bytes_ = max_bytes;
  deadline_ = Clock::now() + seconds;
  return true;
}

bool Connection::wait(bool to_write) {
  constexpr int kSliceMs = 50;
  const short events = to_write ? POLLOUT : POLLIN;
  for (pollfd polled{fd_, events, 0}; Clock::now() < deadline_;) {
    if (stopping_ && !answering_) return false;
    if (::poll(&polled, 1, kSliceMs) > 0) return true;
    if (crowded_ && is_kept_) return false;
  }
  return false;
}

// Calls move_some() until it succeeds, waiting if necessary.
template <typename Move>
long Connection::move(bool to_write, const Move& move_some) {
  while (true) {
    if (tls_ == nullptr) {
      const long n = move_some();
      if (n >= 0) return n;
      if (errno == EINTR) continue;
      if ((errno != EAGAIN && errno != EWOULDBLOCK) || !wait(to_write)) return -1;
      continue;
    }
    ERR_clear_error();
    const long n = move_some();
    if (n > 0) return n;
    switch (SSL_get_error(tls_, int(n))) {
      case SSL_ERROR_ZERO_RETURN:
        return 0;
      case SSL_ERROR_WANT_READ:
        if (!wait(false)) return -1;
        break;
      case SSL_ERROR_WANT_WRITE:
        if (!wait(true)) return -1;
        break;
      default:
        return -1;
    }
  }
}

bool Connection::shake_hands() {
  if (!wants_tls_ || is_shaken_) return true;
  if (tls_ == nullptr) return false;
  deadline_ = Clock::now() + seconds_;
  return is_shaken_ = move(false, [this] { return long(SSL_accept(tls_)); }) > 0;
}

long Connection::receive(char* to, size_t size) {
  size = std::min(size, left_bytes_);
  if (size == 0) return -1;
  const long n = move(false, [&]() -> long {
    return tls_ == nullptr ? ::recv(fd_, to, size, 0) : SSL_read(tls_, to, int(size));
  });
  if (n > 0) left_bytes_ -= size_t(n);
  return n;
}

long Connection::read(char* to, size_t size) {
  if (begin_ == end_) {  // callers read a byte at a time
    if (size >= sizeof buffer_) return receive(to, size);
    const long n = receive(buffer_, sizeof buffer_);
    if (n <= 0) return n;
    begin_ = 0, end_ = size_t(n);
  }
  size = std::min(size, end_ - begin_);
  std::memcpy(to, buffer_ + begin_, size);
  begin_ += size;
  return long(size);
}

long Connection::write(const char* from, size_t size) {
  if (!answering_) {
    answering_ = true;
    deadline_ = Clock::now() + seconds_;
  }
  const long n = move(true, [&]() -> long {
    const size_t some = std::min(size, size_t{1} << 20);
    return tls_ == nullptr ? ::send(fd_, from, some, MSG_NOSIGNAL)
                           : SSL_write(tls_, from, int(some));
  });
  if (n > 0) {
    const std::chrono::duration<double> earned(double(n) / kLeastBytesPerSecond);
    deadline_ = std::min(deadline_ + std::chrono::duration_cast<Clock::duration>(earned),
                         Clock::now() + seconds_);
  }
  return n;
}

void Connection::drain() {
  if (tls_ != nullptr && is_shaken_) SSL_shutdown(tls_);
  ::shutdown(fd_, SHUT_WR);
  left_bytes_ = kMaxDrainedBytes;
  deadline_ = Clock::now() + seconds_;
  answering_ = false;
  begin_ = end_ = 0;
  for (char rest[4096];;) {
    const ssize_t n = ::recv(fd_, rest, std::min(sizeof rest, left_bytes_), 0);
    if (n == 0 || left_bytes_ == 0) return;
    if (n > 0) {
      left_bytes_ -= size_t(n);
    } else if ((errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR) || !wait(false)) {
      return;
    }
  }
}

}  // namespace deltawire
