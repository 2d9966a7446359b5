// An HTTP server with scripted answers, for behaviour that no real server shows on request.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace deltawire::testing {

struct SeenRequest {
  std::string method, target;                  // "GET", "/bucket/key?list-type=2"
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;

  bool has(const std::string& name) const { return headers.count(name) != 0; }
};

struct Reply {
  enum Then { kKeep, kClose, kHang };

  std::string bytes;  // exactly as they are sent
  Then then = kKeep;  // kHang: the connection stays open and silent until the server ends
};

// "HTTP/1.1 200 OK", content-length, more headers ("name: value\r\n" each), body.
Reply reply(int status, const std::string& body = "", const std::string& headers = "");
// <Error><Code>code</Code>...
Reply error_reply(int status, const std::string& code, const std::string& message = "told so");

// Listens on a port of 127.0.0.1; one thread per connection. The script is called with each request
// and its number, from 0; calls do not overlap.
class ScriptedServer {
 public:
  using Script = std::function<Reply(const SeenRequest& request, size_t number)>;

  explicit ScriptedServer(Script script);
  ~ScriptedServer();
  ScriptedServer(const ScriptedServer&) = delete;
  ScriptedServer& operator=(const ScriptedServer&) = delete;

  int port() const { return port_; }
  std::string endpoint() const { return "http://127.0.0.1:" + std::to_string(port_); }
  std::vector<SeenRequest> seen() const;
  size_t num_connections() const { return num_connections_; }

 private:
  void accept_all();
  void serve(int fd);

  const Script script_;
  int listener_ = -1, port_ = 0;
  std::atomic<bool> stopping_{false};
  std::atomic<size_t> num_connections_{0};
  mutable std::mutex mutex_;
  std::vector<SeenRequest> seen_;
  std::vector<int> fds_;
  std::vector<std::thread> threads_;
  std::thread acceptor_;
};

}  // namespace deltawire::testing
