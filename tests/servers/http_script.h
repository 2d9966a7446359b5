// Runs tests/servers/http_script as a separate process and talks to it: an engine on a real socket
// that follows a script.
#pragma once

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace deltawire::testing {

class HttpScript {
 public:
  using Json = nlohmann::ordered_json;

  explicit HttpScript(const Json& script = Json::object()) {
    start();
    load(script);
  }
  ~HttpScript() { stop(); }
  HttpScript(const HttpScript&) = delete;
  HttpScript& operator=(const HttpScript&) = delete;

  std::string url() const { return "http://127.0.0.1:" + std::to_string(port_); }

  void load(const Json& script) { exchange("PUT", "/_script", script.dump()); }

  struct Request {
    std::string call;  // "POST /pause?mode=keep"
    Json body;         // null when there was none
    Json headers;
  };
  std::vector<Request> requests() const {
    std::vector<Request> out;
    for (const Json& request : Json::parse(exchange("GET", "/_requests", ""))) {
      const std::string query = request["query"], text = request["body"];
      out.push_back({request["method"].get<std::string>() + " " +
                         request["path"].get<std::string>() + (query.empty() ? "" : "?" + query),
                     text.empty() ? Json() : Json::parse(text), request["headers"]});
    }
    return out;
  }
  std::vector<std::string> calls() const {
    std::vector<std::string> out;
    for (const Request& request : requests()) out.push_back(request.call);
    return out;
  }

  // Ends the process: connections are refused from now on.
  void stop() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    wait_for_end();
  }
  // Waits until the script has ended the process.
  void wait_for_end() {
    ::waitpid(pid_, nullptr, 0);
    ::close(to_server_);
    pid_ = -1;
  }

 private:
  void start() {
    int input[2], output[2];
    if (::pipe(input) != 0 || ::pipe(output) != 0) std::abort();
    pid_ = ::fork();
    if (pid_ == 0) {
      ::dup2(input[0], STDIN_FILENO);
      ::dup2(output[1], STDOUT_FILENO);
      for (const int fd : {input[0], input[1], output[0], output[1]}) ::close(fd);
      ::execl("/usr/bin/python3", "python3", DELTAWIRE_TESTS_DIR "/servers/http_script", nullptr);
      ::execlp("python3", "python3", DELTAWIRE_TESTS_DIR "/servers/http_script", nullptr);
      ::_exit(127);
    }
    ::close(input[0]);
    ::close(output[1]);
    to_server_ = input[1];
    ::fcntl(to_server_, F_SETFD, FD_CLOEXEC);
    std::string line;
    for (char c = 0; ::read(output[0], &c, 1) == 1 && c != '\n';) line.push_back(c);
    ::close(output[0]);
    port_ = std::atoi(line.c_str());
    if (port_ == 0) ADD_FAILURE() << "tests/servers/http_script did not start";
  }

  // Sends one request over its own connection; returns the answer's body.
  std::string exchange(const std::string& method, const std::string& path,
                       const std::string& body) const {
    const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(uint16_t(port_));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    std::string reply;
    if (::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0) {
      const std::string request = method + " " + path + " HTTP/1.1\r\nConnection: close\r\n" +
                                  "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" +
                                  body;
      if (::write(fd, request.data(), request.size()) == ssize_t(request.size())) {
        char buffer[4096];
        for (ssize_t n = 0; (n = ::read(fd, buffer, sizeof buffer)) > 0;) {
          reply.append(buffer, size_t(n));
        }
      }
    }
    ::close(fd);
    const size_t end = reply.find("\r\n\r\n");
    if (end == std::string::npos) ADD_FAILURE() << method << " " << path << " got no answer";
    return end == std::string::npos ? "[]" : reply.substr(end + 4);
  }

  pid_t pid_ = -1;
  int to_server_ = -1;
  int port_ = 0;
};

}  // namespace deltawire::testing
