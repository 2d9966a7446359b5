// TCP sockets: never a signal, never inherited, never blocking; addresses as text.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/file.h"
#include "carrier/net/deadline.h"
#include "deltawire/status.h"

namespace deltawire {

// Owns a descriptor, and can be given away.
class Socket {
 public:
  Socket() = default;
  explicit Socket(int fd) : fd_(fd) {}
  Socket(Socket&& other) noexcept : fd_(other.release()) {}
  Socket& operator=(Socket&& other) noexcept {
    close();
    fd_ = other.release();
    return *this;
  }
  ~Socket() { close(); }

  int get() const noexcept { return fd_; }
  bool ok() const noexcept { return fd_ >= 0; }
  int release() noexcept { return std::exchange(fd_, -1); }
  void close() noexcept {
    if (fd_ >= 0) ::close(release());
  }

 private:
  int fd_ = -1;
};

// "host:port", "10.0.0.1:4711", "[::1]:4711".
struct Endpoint {
  std::string host;
  std::string port;
};
Result<Endpoint> parse_endpoint(std::string_view text);
std::string endpoint_text(std::string_view host, unsigned port);

struct Listening {
  Socket socket;
  std::string address;    // "host:port" where others find it
  bool loopback = false;  // nobody outside this machine can come
};
// `address` is "host:port"; port 0: any. Where the host is all of this machine's addresses, the
// first that others can reach stands in the answer.
Result<Listening> listen_on(const std::string& address, int backlog = 1024);

// The next that waits, if any. Fails where the system gives no more descriptors.
Result<Socket> accept_next(int listener);

// One try at each address that the name has. Unavailable where nobody listens.
Result<Socket> connect_to(const std::string& address, const Deadline& deadline);

std::string local_address(int fd);   // "host:port"
std::string remote_address(int fd);  // likewise, for messages too
std::string host_of(std::string_view address);

// What most errors of a socket mean here: the other end cannot be reached any more.
Status socket_error(std::string_view place, std::string_view what, int error);
bool is_transient(int error) noexcept;  // EAGAIN, EINTR

// Waits until `fd` has one of the `events`. Unavailable when the time is over.
Status wait_for_socket(int fd, short events, const Deadline& deadline, std::string_view place);
// All bytes.
Status send_all(int fd, std::string_view bytes, const Deadline& deadline, std::string_view place);
// So many bytes: few enough to take the memory for them first.
Result<std::string> receive_exactly(int fd, size_t size, const Deadline& deadline,
                                    std::string_view place);

}  // namespace deltawire
