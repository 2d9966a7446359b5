#include "carrier/net/socket.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <cstring>
#include <memory>

namespace deltawire {
namespace {

struct FreeAddresses {
  void operator()(addrinfo* list) const { ::freeaddrinfo(list); }
};
using Addresses = std::unique_ptr<addrinfo, FreeAddresses>;

Result<Addresses> resolve(const std::string& address, bool to_listen) {
  DW_ASSIGN_OR_RETURN(const Endpoint endpoint, parse_endpoint(address));
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | (to_listen ? AI_PASSIVE : 0);
  addrinfo* list = nullptr;
  const int error = ::getaddrinfo(endpoint.host.c_str(), endpoint.port.c_str(), &hints, &list);
  Addresses addresses(list);
  if (error == EAI_AGAIN || error == EAI_NONAME) {  // its name may be known soon
    return unavailable(address + ": " + ::gai_strerror(error));
  }
  if (error != 0) return invalid_argument(address + ": " + ::gai_strerror(error));
  return addresses;
}

bool is_loopback(const sockaddr* address) {
  if (address->sa_family == AF_INET) {
    const auto* v4 = reinterpret_cast<const sockaddr_in*>(address);
    return (ntohl(v4->sin_addr.s_addr) >> 24) == 127;
  }
  return address->sa_family == AF_INET6 &&
         IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr);
}

bool is_any(const sockaddr* address) {
  if (address->sa_family == AF_INET) {
    return reinterpret_cast<const sockaddr_in*>(address)->sin_addr.s_addr == INADDR_ANY;
  }
  return address->sa_family == AF_INET6 &&
         IN6_IS_ADDR_UNSPECIFIED(&reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr);
}

std::string numeric_host(const sockaddr* address, socklen_t size) {
  char host[NI_MAXHOST] = "";
  ::getnameinfo(address, size, host, sizeof host, nullptr, 0, NI_NUMERICHOST);
  return host;
}

unsigned port_of(const sockaddr* address) {
  return address->sa_family == AF_INET6
             ? ntohs(reinterpret_cast<const sockaddr_in6*>(address)->sin6_port)
             : ntohs(reinterpret_cast<const sockaddr_in*>(address)->sin_port);
}

std::string address_text(const sockaddr_storage& storage, socklen_t size) {
  const auto* address = reinterpret_cast<const sockaddr*>(&storage);
  if (address->sa_family != AF_INET && address->sa_family != AF_INET6) return "a local socket";
  return endpoint_text(numeric_host(address, size), port_of(address));
}

// The first that is up and not loopback; loopback where there is no other.
std::string own_host() {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return "127.0.0.1";
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(list, ::freeifaddrs);
  for (const ifaddrs* one = list; one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr || one->ifa_addr->sa_family != AF_INET) continue;
    if ((one->ifa_flags & IFF_UP) == 0 || is_loopback(one->ifa_addr)) continue;
    return numeric_host(one->ifa_addr, sizeof(sockaddr_in));
  }
  return "127.0.0.1";
}

void set_option(int fd, int level, int name, int value) {
  ::setsockopt(fd, level, name, &value, sizeof value);
}

// A host that vanishes is noticed within half a minute where nothing is sent; where something is,
// by the time-out of the call. (TCP_USER_TIMEOUT would also end connections to ranks that merely
// are at work and do not read.)
void make_lively(int fd) {
  set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, 10);
  set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, 5);
  set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, 4);
}

Result<Socket> connect_one(const addrinfo& address, const std::string& place,
                           const Deadline& deadline) {
  Socket socket(::socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.ok()) return io_error(place + ": socket: " + std::strerror(errno));
  if (::connect(socket.get(), address.ai_addr, address.ai_addrlen) != 0) {
    if (errno != EINPROGRESS && errno != EINTR) return socket_error(place, "connect", errno);
    DW_RETURN_IF_ERROR(wait_for_socket(socket.get(), POLLOUT, deadline, place));
    int error = 0;
    socklen_t size = sizeof error;
    ::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &size);
    if (error != 0) return socket_error(place, "connect", error);
  }
  make_lively(socket.get());
  return socket;
}

}  // namespace

bool is_transient(int error) noexcept {
  return error == EAGAIN || error == EWOULDBLOCK || error == EINTR;
}

Status socket_error(std::string_view place, std::string_view what, int error) {
  return unavailable(std::string(place) + ": " + std::string(what) + ": " + std::strerror(error));
}

Result<Endpoint> parse_endpoint(std::string_view text) {
  const size_t colon = text.rfind(':');
  const std::string shown(text.substr(0, 300));
  if (colon == std::string_view::npos || colon + 1 == text.size()) {
    return invalid_argument("address " + shown + ": not HOST:PORT");
  }
  Endpoint endpoint{std::string(text.substr(0, colon)), std::string(text.substr(colon + 1))};
  if (endpoint.port.size() > 5 ||
      endpoint.port.find_first_not_of("0123456789") != std::string::npos ||
      std::stoul(endpoint.port) > 65535) {
    return invalid_argument("address " + shown + ": not a port: " + endpoint.port);
  }
  if (endpoint.host.size() > 2 && endpoint.host.front() == '[' && endpoint.host.back() == ']') {
    endpoint.host = endpoint.host.substr(1, endpoint.host.size() - 2);
  } else if (endpoint.host.find(':') != std::string::npos) {
    return invalid_argument("address " + shown + ": write [HOST]:PORT for IPv6");
  }
  if (endpoint.host.empty() || endpoint.host.size() > 255) {
    return invalid_argument("address " + shown + ": not HOST:PORT");
  }
  return endpoint;
}

std::string endpoint_text(std::string_view host, unsigned port) {
  const bool v6 = host.find(':') != std::string_view::npos;
  return (v6 ? "[" : "") + std::string(host) + (v6 ? "]:" : ":") + std::to_string(port);
}

std::string host_of(std::string_view address) {
  const auto endpoint = parse_endpoint(address);
  return endpoint.ok() ? endpoint->host : std::string(address);
}

Result<Listening> listen_on(const std::string& address, int backlog) {
  DW_ASSIGN_OR_RETURN(const Addresses list, resolve(address, true));
  Status failure = io_error(address + ": no address");
  for (const addrinfo* one = list.get(); one != nullptr; one = one->ai_next) {
    Socket socket(::socket(one->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (socket.ok()) set_option(socket.get(), SOL_SOCKET, SO_REUSEADDR, 1);
    if (!socket.ok() || ::bind(socket.get(), one->ai_addr, one->ai_addrlen) != 0 ||
        ::listen(socket.get(), backlog) != 0) {
      failure = io_error("cannot listen on " + address + ": " + std::strerror(errno));
      continue;
    }
    sockaddr_storage bound{};
    socklen_t size = sizeof bound;
    ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&bound), &size);
    const auto* own = reinterpret_cast<const sockaddr*>(&bound);
    Listening result;
    result.loopback = is_loopback(own);
    result.address =
        is_any(own) ? endpoint_text(own_host(), port_of(own)) : address_text(bound, size);
    result.socket = std::move(socket);
    return result;
  }
  return failure;
}

Result<Socket> accept_next(int listener) {
  const int fd = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (fd >= 0) {
    make_lively(fd);
    return Socket(fd);
  }
  const bool full = errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM;
  if (full) return io_error(std::string("accept: ") + std::strerror(errno));
  return Socket();  // none waits, or it has left already
}

Result<Socket> connect_to(const std::string& address, const Deadline& deadline) {
  DW_ASSIGN_OR_RETURN(const Addresses list, resolve(address, false));
  Status failure = unavailable(address + ": no address");
  for (const addrinfo* one = list.get(); one != nullptr; one = one->ai_next) {
    // One that swallows what it gets must not take the time of the next.
    auto socket =
        connect_one(*one, address, one->ai_next == nullptr ? deadline : deadline.sooner(5));
    if (socket.ok()) return socket;
    failure = socket.status();
  }
  return failure;
}

std::string local_address(int fd) {
  sockaddr_storage storage{};
  socklen_t size = sizeof storage;
  ::getsockname(fd, reinterpret_cast<sockaddr*>(&storage), &size);
  return address_text(storage, size);
}

std::string remote_address(int fd) {
  sockaddr_storage storage{};
  socklen_t size = sizeof storage;
  ::getpeername(fd, reinterpret_cast<sockaddr*>(&storage), &size);
  return address_text(storage, size);
}

Status wait_for_socket(int fd, short events, const Deadline& deadline, std::string_view place) {
  for (;;) {
    pollfd polled{fd, events, 0};
    const int ready = ::poll(&polled, 1, deadline.wait_ms());
    if (ready > 0) return {};
    if (ready < 0 && errno != EINTR) return socket_error(place, "poll", errno);
    if (stop_requested()) return cancelled(std::string(place) + ": stopped");
    if (deadline.over()) return unavailable(std::string(place) + ": no answer in time");
  }
}

Status send_all(int fd, std::string_view bytes, const Deadline& deadline, std::string_view place) {
  while (!bytes.empty()) {
    const ssize_t n = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && !is_transient(errno)) return socket_error(place, "send", errno);
    if (n < 0) DW_RETURN_IF_ERROR(wait_for_socket(fd, POLLOUT, deadline, place));
    if (n > 0) bytes.remove_prefix(size_t(n));
  }
  return {};
}

Result<std::string> receive_exactly(int fd, size_t size, const Deadline& deadline,
                                    std::string_view place) {
  std::string bytes(size, '\0');
  for (size_t done = 0; done < size;) {
    const ssize_t n = ::recv(fd, bytes.data() + done, size - done, MSG_DONTWAIT);
    if (n == 0) return unavailable(std::string(place) + ": it closed the connection");
    if (n < 0 && !is_transient(errno)) return socket_error(place, "receive", errno);
    if (n < 0) DW_RETURN_IF_ERROR(wait_for_socket(fd, POLLIN, deadline, place));
    if (n > 0) done += size_t(n);
  }
  return bytes;
}

}  // namespace deltawire
