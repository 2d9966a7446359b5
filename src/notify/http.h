// HTTP calls to one engine: each with a time limit and a bounded number of attempts.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "deltawire/status.h"
#include "http/http_client.h"
#include "notify/notifier.h"

namespace deltawire {

// The engine does not offer this call: it is an older version, or its development mode is off.
inline bool not_offered(const HttpAnswer& answer) noexcept {
  return answer.status == 404 || answer.status == 405 || answer.status == 501;
}

// Redirects and proxies are not followed: a key is sent to the engine that was named, or nowhere.
class EngineClient {
 public:
  EngineClient(std::string base_url, EngineOptions options);

  // Returns answers of any status, except temporary failures (5xx, 408, 429): those are retried,
  // like failed connections and timeouts, and finally Unavailable. Cancelled if the options'
  // `cancelled` returns true. The key is removed from the text of answers.
  Result<HttpAnswer> get(std::string_view path) const {
    return call("GET", path, {}, options_.cancelled);
  }
  // `json` is sent as it is; empty: no body.
  Result<HttpAnswer> post(std::string_view path, const std::string& json) const {
    return call("POST", path, json, options_.cancelled);
  }
  // For calls that must be made even after a request to stop: they get kGraceSeconds then.
  Result<HttpAnswer> post_despite_stop(std::string_view path, const std::string& json) const;
  static constexpr double kGraceSeconds = 5;

  // An answer that is not 2xx, as a failure: "POST /pause: HTTP 404: ...".
  static Status failure(std::string_view method, std::string_view path, const HttpAnswer& answer);
  // Of a POST: Ok for any 2xx.
  static Status check(std::string_view path, const Result<HttpAnswer>& answer) {
    if (!answer.ok()) return answer.status();
    return answer->ok() ? Status() : failure("POST", path, *answer);
  }
  // A failure for a 2xx answer that is not `expected`, such as a proxy's page.
  static Status not_understood(std::string_view method, std::string_view path,
                               const HttpAnswer& answer, std::string_view expected);

 private:
  using Stop = std::function<bool()>;  // true: end the call
  Result<HttpAnswer> call(std::string_view method, std::string_view path, const std::string& body,
                          const Stop& stop) const;

  const std::string base_url_;
  const EngineOptions options_;
  const std::unique_ptr<HttpClient> http_;
};

// `url` has passed check_engine_url().
std::unique_ptr<Engine> make_sglang(std::string url, const EngineOptions& options);
std::unique_ptr<Engine> make_vllm(std::string url, const EngineOptions& options);

}  // namespace deltawire
