#include "s3_scripted_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>

namespace deltawire::testing {
namespace {

std::string lower(std::string text) {
  for (char& c : text) {
    if (c >= 'A' && c <= 'Z') c = char(c - 'A' + 'a');
  }
  return text;
}

// One request from `buffer`, filled from the connection as needed; false when it has ended.
bool receive(int fd, std::string* buffer, SeenRequest* request) {
  const auto more = [&] {
    char piece[65536];
    const ssize_t n = ::recv(fd, piece, sizeof piece, 0);
    if (n > 0) buffer->append(piece, size_t(n));
    return n > 0;
  };
  size_t end;
  while ((end = buffer->find("\r\n\r\n")) == buffer->npos) {
    if (!more()) return false;
  }
  const size_t line_end = buffer->find("\r\n"), space = buffer->find(' ');
  request->method = buffer->substr(0, space);
  request->target = buffer->substr(space + 1, buffer->find(' ', space + 1) - space - 1);
  for (size_t at = line_end + 2; at < end + 2;) {
    const size_t stop = buffer->find("\r\n", at), colon = buffer->find(':', at);
    size_t value = colon + 1;
    while (value < stop && (*buffer)[value] == ' ') ++value;
    request->headers[lower(buffer->substr(at, colon - at))] = buffer->substr(value, stop - value);
    at = stop + 2;
  }
  buffer->erase(0, end + 4);
  const size_t size = request->has("content-length")
                          ? size_t(std::atoll(request->headers["content-length"].c_str()))
                          : 0;
  while (buffer->size() < size) {
    if (!more()) return false;
  }
  request->body = buffer->substr(0, size);
  buffer->erase(0, size);
  return true;
}

bool send_all(int fd, const std::string& bytes) {
  for (size_t done = 0; done < bytes.size();) {
    const ssize_t n = ::send(fd, bytes.data() + done, bytes.size() - done, MSG_NOSIGNAL);
    if (n <= 0) return false;
    done += size_t(n);
  }
  return true;
}

}  // namespace

Reply reply(int status, const std::string& body, const std::string& headers) {
  return {"HTTP/1.1 " + std::to_string(status) + " Told\r\ncontent-length: " +
              std::to_string(body.size()) + "\r\n" + headers + "\r\n" + body,
          Reply::kKeep};
}

Reply error_reply(int status, const std::string& code, const std::string& message) {
  return reply(status, "<Error><Code>" + code + "</Code><Message>" + message +
                           "</Message><RequestId>request-1</RequestId></Error>");
}

ScriptedServer::ScriptedServer(Script script) : script_(std::move(script)) {
  listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* const any = reinterpret_cast<sockaddr*>(&address);
  if (::bind(listener_, any, size) != 0 || ::listen(listener_, 64) != 0 ||
      ::getsockname(listener_, any, &size) != 0) {
    std::abort();
  }
  port_ = ntohs(address.sin_port);
  acceptor_ = std::thread([this] { accept_all(); });
}

ScriptedServer::~ScriptedServer() {
  stopping_ = true;
  ::shutdown(listener_, SHUT_RDWR);
  acceptor_.join();
  {
    const std::lock_guard lock(mutex_);
    for (const int fd : fds_) ::shutdown(fd, SHUT_RDWR);
  }
  for (std::thread& thread : threads_) thread.join();
  for (const int fd : fds_) ::close(fd);
  ::close(listener_);
}

std::vector<SeenRequest> ScriptedServer::seen() const {
  const std::lock_guard lock(mutex_);
  return seen_;
}

void ScriptedServer::accept_all() {
  while (!stopping_) {
    const int fd = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (fd < 0) continue;
    ++num_connections_;
    const std::lock_guard lock(mutex_);
    fds_.push_back(fd);
    threads_.emplace_back([this, fd] { serve(fd); });
  }
}

void ScriptedServer::serve(int fd) {
  std::string buffer;
  for (SeenRequest request; receive(fd, &buffer, &request); request = {}) {
    Reply answer;
    {
      const std::lock_guard lock(mutex_);
      seen_.push_back(request);
      answer = script_(request, seen_.size() - 1);
    }
    if (!send_all(fd, answer.bytes)) break;
    if (answer.then == Reply::kClose) break;
    if (answer.then == Reply::kHang) {
      char byte;
      while (::recv(fd, &byte, 1, 0) > 0) {
      }
      return;
    }
  }
  ::shutdown(fd, SHUT_RDWR);  // closed when the server ends: its number is not lent again
}

}  // namespace deltawire::testing
