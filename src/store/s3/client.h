// Signed requests to one bucket, and what their failures mean.
#pragma once

#include <atomic>
#include <mutex>
#include <string>

#include "deltawire/store.h"
#include "http/http_client.h"
#include "store/s3/address.h"
#include "store/s3/answers.h"
#include "store/s3/credentials.h"

namespace deltawire::s3 {

// A range of a Body, streamed: nothing of it is kept.
struct BodyRange {
  const Body* body = nullptr;
  uint64_t offset = 0, size = 0;
};

struct Request {
  std::string method = "GET";
  std::string key = {};  // empty: the bucket
  Pairs query = {};
  Pairs headers = {};
  BodyRange body = {};
  std::string body_sha256 = {};  // hex; empty: send() computes it
  bool may_resend = true;
  uint64_t moved_bytes = 0;  // what the deadline allows for
  std::function<Status(const HttpAnswer& head, std::span<const uint8_t> bytes)> on_bytes = {};
  const std::atomic<bool>* cancelled = nullptr;
};

// Thread-safe.
class Client {
 public:
  static Result<std::unique_ptr<Client>> make(const std::string& bucket,
                                              const StoreOptions& options);

  // An answer of any status, or why there is none. A bucket of another region is followed there.
  Result<HttpAnswer> send(const Request& request);
  // The same, where anything but a 2xx is a failure.
  Result<HttpAnswer> send_ok(const Request& request);
  // What an answer that is not a 2xx means. The message holds status, S3's code and the request id.
  Status failure(const HttpAnswer& answer);

  const std::string& bucket() const { return bucket_; }
  std::string region();

 private:
  Client(std::string bucket, Address address, const StoreOptions& options);
  Result<HttpAnswer> send_once(const Request& request, const std::string& region,
                               const Credentials& credentials);
  Result<HttpAnswer> send_with_fresh_keys(const Request& request, const std::string& region);
  std::string region_asked_for(const HttpAnswer& answer) const;
  std::string shown(std::string_view text);

  const std::string bucket_;
  const Address address_;
  const double call_timeout_seconds_;
  const double sharers_;  // requests that may share the link
  std::unique_ptr<CredentialsSource> credentials_;
  HttpClient http_;
  std::mutex mutex_;
  std::string region_;
};

// Of a range, streamed: hex.
Result<std::string> sha256_of(const BodyRange& range);

}  // namespace deltawire::s3
