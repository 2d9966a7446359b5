#include "store/http/client.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>

#include "base/json.h"
#include "base/stop.h"
#include "base/text.h"
#include "store/http_store.h"

namespace deltawire::http {
namespace {

constexpr size_t kMostHolders = 1024;
constexpr double kBytesPerTimeout = double(uint64_t{64} << 20);

}  // namespace

Client::Client(std::vector<std::string> sources, Secret token, const StoreOptions& options)
    : sources_(std::move(sources)),
      token_(std::move(token)),
      call_timeout_seconds_(options.call_timeout_seconds),
      sharers_(options.connections),
      http_(options.ca_file, options.connections + 1, options.client_cert) {}

Result<std::unique_ptr<Client>> Client::make(const std::string& urls, const StoreOptions& options) {
  std::vector<std::string> sources;
  for (const std::string_view url : split_text(urls, ',')) {
    DW_ASSIGN_OR_RETURN(HttpUrl parsed, located(parse_http_url(url), "store"));
    sources.push_back(parsed.scheme + "://" + parsed.host + parsed.path);
  }
  if (!options.token.empty() && !options.token_file.empty()) {
    return invalid_argument("token, token_file: only one of both can be given");
  }
  DW_ASSIGN_OR_RETURN(Secret token, options.token.empty() ? read_secret(options.token_file)
                                                          : Secret(options.token));
  static thread_local std::mt19937_64 random{std::random_device{}()};
  std::shuffle(sources.begin(), sources.end(), random);
  return std::unique_ptr<Client>(new Client(std::move(sources), std::move(token), options));
}

std::string Client::url() const {
  std::string all = sources_[0];
  for (size_t i = 1; i < sources_.size(); ++i) all += "," + sources_[i];
  return all;
}

Result<HttpAnswer> Client::send(const Request& given) {
  Request request = given;
  bool took_bytes = false;
  if (given.on_bytes) {
    request.on_bytes = [&](const HttpAnswer& head, std::span<const uint8_t> bytes) {
      took_bytes = true;
      return given.on_bytes(head, bytes);
    };
  }
  const size_t first = source_;
  std::optional<HttpAnswer> missing;  // the 404 of a source
  for (size_t i = 0;; ++i) {
    const size_t source = (first + i) % sources_.size();
    Result<HttpAnswer> answer = send_to(sources_[source], request);
    const bool answered = answer.ok() && answer->status < 500;
    if (answered && (answer->status != 404 || !missing)) source_ = source;
    if (answered && answer->status != 404) return answer;
    if (answered) missing = std::move(*answer);
    if (answer.status().code() == Code::kCancelled) return answer;
    if (!answer.ok() && took_bytes) {  // another source cannot continue this body
      source_ = (source + 1) % sources_.size();
      return answer;
    }
    if (i + 1 < sources_.size()) continue;
    return missing ? std::move(*missing) : std::move(answer);
  }
}

// A trainer's rank 0 redirects readers of a part to the rank that holds it. Rank 0 already has the
// token, so the token is sent there too, but never from https to http.
Result<HttpAnswer> Client::send_to(const std::string& source, const Request& request) {
  const bool reads = (request.method == "GET" || request.method == "HEAD") &&
                     request.target.starts_with(std::string(kObjectsPath) + "/");
  const std::string folder = request.target.substr(0, request.target.rfind('/') + 1);
  const std::string known = reads ? holder_of(source + folder) : "";
  if (!known.empty()) {
    Result<HttpAnswer> answer = send_once(known + request.target, request);
    if (answer.ok() && answer->status < 500) return answer;
    keep_holder(source + folder, "");  // it may have moved
    if (!answer.ok()) return std::move(answer).status().at("sent on to " + known);
    return answer;
  }
  DW_ASSIGN_OR_RETURN(HttpAnswer answer, send_once(source + request.target, request));
  if (answer.status != 307 || !reads) return answer;
  const std::string to(answer.header("location"));
  const std::string scheme = source.substr(0, source.find("://") + 3);
  if (!to.starts_with(scheme) || !to.ends_with(request.target)) {
    return io_error("the server redirects readers to " + printable(to) + ": expected the same " +
                    "object at " + scheme + "HOST:PORT");
  }
  const std::string holder = to.substr(0, to.size() - request.target.size());
  keep_holder(source + folder, holder);
  return located(send_once(to, request), "sent on to " + holder);
}

std::string Client::holder_of(const std::string& folder) {
  const std::lock_guard lock(mutex_);
  const auto found = holders_.find(folder);
  return found == holders_.end() ? "" : found->second;
}

void Client::keep_holder(const std::string& folder, const std::string& url) {
  const std::lock_guard lock(mutex_);
  if (url.empty()) {
    holders_.erase(folder);
    return;
  }
  if (holders_.size() >= kMostHolders) holders_.clear();
  holders_[folder] = url;
}

Result<HttpAnswer> Client::send_once(const std::string& url, const Request& request) {
  HttpRequest http;
  http.method = request.method;
  http.url = url;
  for (const auto& [name, value] : request.headers) http.headers.push_back(name + ": " + value);
  if (!token_.empty()) http.headers.push_back("authorization: Bearer " + token_.reveal());
  if (request.body != nullptr) {
    http.body_size = request.body->size();
    http.read_body = [body = request.body](uint64_t offset, std::span<uint8_t> out) {
      return body->read(offset, out);
    };
  }
  const double seconds = call_timeout_seconds_;
  http.stall_seconds = seconds + request.extra_seconds;
  http.timeout_seconds = request.extra_seconds +
                         seconds * (1 + double(request.moved_bytes) * sharers_ / kBytesPerTimeout);
  http.on_bytes = request.on_bytes;
  http.cancelled = [&] {
    return ending_ || stop_requested() || (request.cancelled != nullptr && *request.cancelled);
  };
  return http_.perform(http);
}

Result<HttpAnswer> Client::send_ok(const Request& request) {
  DW_ASSIGN_OR_RETURN(HttpAnswer answer, send(request));
  if (!answer.ok()) return failure(answer);
  return answer;
}

Status Client::failure(const HttpAnswer& answer) const {
  std::string detail = "HTTP " + std::to_string(answer.status);
  if (const std::string error = string_in(parse_json(answer.text), "error"); !error.empty()) {
    detail += ": " + printable(hide_secret(error, token_));
  }
  switch (answer.status) {
    case 401:
      return io_error("the server does not accept the token (" + detail + ")");
    case 403:
      return unsupported("the server does not allow this (" + detail + ")");
    case 404:
      if (answer.header(kStoreHeader).empty()) {
        return io_error("not a store of deltawire: check host, port and path (" + detail + ")");
      }
      return not_found("no such object (" + detail + ")");
    case 408:
    case 425:
    case 429:
      return unavailable("the server asks to try again (" + detail + ")");
    default:
      break;
  }
  if (answer.status >= 500) return unavailable("the server failed (" + detail + ")");
  return io_error("the server refused (" + detail + ")");
}

}  // namespace deltawire::http
