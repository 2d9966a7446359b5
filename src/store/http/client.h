// Requests to one or several servers of the same chain.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/secret.h"
#include "deltawire/store.h"
#include "http/http_client.h"
#include "store/pieces.h"

namespace deltawire::http {

struct Request {
  std::string method = "GET", target;
  RangeSource::Headers headers = {};
  const Body* body = nullptr;
  uint64_t moved_bytes = 0;
  double extra_seconds = 0;  // that the server may take
  RangeSource::OnBytes on_bytes = {};
  const std::atomic<bool>* cancelled = nullptr;
};

// Thread-safe.
class Client {
 public:
  // `urls`: with commas between them.
  static Result<std::unique_ptr<Client>> make(const std::string& urls, const StoreOptions& options);

  // An answer of any status, or why there is none. Asks the source that answered last, then others
  // if that one fails or lacks the object, since a relay may lag behind.
  Result<HttpAnswer> send(const Request& request);
  // The same, where anything but a 2xx is a failure.
  Result<HttpAnswer> send_ok(const Request& request);
  Status failure(const HttpAnswer& answer) const;

  std::string url() const;        // of all sources
  void end() { ending_ = true; }  // cancels requests within a second

 private:
  Client(std::vector<std::string> sources, Secret token, const StoreOptions& options);
  Result<HttpAnswer> send_to(const std::string& source, const Request& request);
  Result<HttpAnswer> send_once(const std::string& url, const Request& request);
  std::string holder_of(const std::string& folder);
  void keep_holder(const std::string& folder, const std::string& url);

  const std::vector<std::string> sources_;
  const Secret token_;
  const double call_timeout_seconds_;
  const double sharers_;  // requests that may share the link
  HttpClient http_;
  std::atomic<size_t> source_ = 0;  // that answered last
  std::atomic<bool> ending_ = false;
  std::mutex mutex_;
  std::map<std::string, std::string>
      holders_;  // which server holds folders that a source redirects
};

}  // namespace deltawire::http
