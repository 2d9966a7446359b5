// HTTP calls to one engine: each with a time limit and a bounded number of attempts.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "deltawire/status.h"
#include "notify/engine.h"

namespace deltawire {

// "http://host:port/prefix", checked and without a trailing '/'. InvalidArgument for anything
// else, user:password@ included: arguments are seen by everyone on a machine.
Result<std::string> check_engine_url(std::string_view url);

struct HttpReply {
  int status = 0;
  std::string body;  // at most 64 KiB of it

  bool ok() const noexcept { return status >= 200 && status < 300; }
  // It has no such call: an older engine, or one without its development mode.
  bool not_offered() const noexcept { return status == 404 || status == 405 || status == 501; }
};

// Redirects and proxies are not followed: a key is sent to the engine that was named, or nowhere.
class HttpClient {
 public:
  HttpClient(std::string base_url, EngineOptions options);

  // Any answer is a reply, except those that may change by themselves (5xx, 408, 429): like a
  // connection that fails and a time-out they are tried again, and are Unavailable in the end.
  // Cancelled when the options' `cancelled` says so. The key is nowhere in a reply's body, even if
  // the engine put it there.
  Result<HttpReply> get(std::string_view path) const { return call("GET", path, {}, end_soon()); }
  // `json` is sent as it is; empty: no body.
  Result<HttpReply> post(std::string_view path, const std::string& json) const {
    return call("POST", path, json, end_soon());
  }
  // What an engine must be told even when everything is to end: it has kLastWordSeconds then.
  Result<HttpReply> post_last_word(std::string_view path, const std::string& json) const;
  static constexpr double kLastWordSeconds = 5;

  // A reply that is not 2xx, as a failure: "POST /pause: HTTP 404: ...".
  static Status failure(std::string_view method, std::string_view path, const HttpReply& reply);
  // A reply of 2xx that is not `expected`: a proxy's page, or another server.
  static Status not_understood(std::string_view method, std::string_view path,
                               const HttpReply& reply, std::string_view expected);

 private:
  using Stop = std::function<bool()>;  // true: end the call
  Stop end_soon() const { return options_.cancelled; }
  Stop end_after_a_last_word() const;
  Result<HttpReply> call(std::string_view method, std::string_view path, const std::string& body,
                         const Stop& stop) const;

  const std::string base_url_;
  const EngineOptions options_;
};

// False: this build has no libcurl, and no engine can be called.
bool http_supported() noexcept;

}  // namespace deltawire
