#include "store/s3/client.h"

#include <algorithm>

#include "base/clock.h"
#include "base/file.h"
#include "base/secret.h"
#include "base/stop.h"
#include "deltawire/digest.h"

namespace deltawire::s3 {
namespace {

constexpr char kEmptySha256[] = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
constexpr double kBytesPerTimeout = double(uint64_t{64} << 20);
constexpr int kGraceSeconds = 5;  // how long to wait for an answer after a request to stop

// Some failures with status 400 are temporary.
bool is_passing(std::string_view code) {
  static constexpr std::string_view kPassing[] = {
      "BadDigest",      "IncompleteBody", "InternalError",      "OperationAborted",
      "RequestTimeout", "SlowDown",       "ServiceUnavailable", "XAmzContentSHA256Mismatch"};
  return std::find(std::begin(kPassing), std::end(kPassing), code) != std::end(kPassing);
}

// The answer to a HEAD has no body that could say so.
bool may_be_expired(const Request& request, const HttpAnswer& answer) {
  if (answer.status != 400 && answer.status != 401 && answer.status != 403) return false;
  if (request.method == "HEAD") return true;
  const std::string code = parse_error(answer.text).code;
  return code == "ExpiredToken" || code == "ExpiredTokenException" ||
         code == "TokenRefreshRequired";
}

}  // namespace

Result<std::string> sha256_of(const BodyRange& range) {
  if (range.size == 0) return std::string(kEmptySha256);
  Hasher hasher(DigestKind::kSha256);
  std::vector<uint8_t> piece(size_t(std::min<uint64_t>(range.size, 256 << 10)));
  for (uint64_t done = 0; done < range.size; done += piece.size()) {
    piece.resize(size_t(std::min<uint64_t>(piece.size(), range.size - done)));
    DW_RETURN_IF_ERROR(range.body->read(range.offset + done, piece));
    hasher.update(piece);
  }
  return hasher.finish().hex();
}

Client::Client(std::string bucket, Address address, const StoreOptions& options)
    : bucket_(std::move(bucket)),
      address_(std::move(address)),
      call_timeout_seconds_(options.call_timeout_seconds),
      sharers_(options.connections),
      http_(options.ca_file, options.connections),
      region_(options.region.empty() ? default_region() : options.region) {}

Result<std::unique_ptr<Client>> Client::make(const std::string& bucket,
                                             const StoreOptions& options) {
  DW_RETURN_IF_ERROR(check_bucket(bucket));
  DW_ASSIGN_OR_RETURN(Address address,
                      Address::make(options.endpoint, bucket, options.virtual_host));
  std::unique_ptr<Client> client(new Client(bucket, std::move(address), options));
  DW_RETURN_IF_ERROR(check_region(client->region_));
  if (!(options.call_timeout_seconds > 0)) {
    return invalid_argument("the timeout of a call must be above zero");
  }
  if (options.connections == 0) return invalid_argument("at least one connection is needed");
  if (!options.ca_file.empty()) {
    Result<std::shared_ptr<MappedFile>> readable = MappedFile::open(options.ca_file);
    if (!readable.ok()) return std::move(readable).status();
  }
  DW_ASSIGN_OR_RETURN(client->credentials_,
                      CredentialsSource::find(client->region_, options.ca_file, options.profile));
  return client;
}

std::string Client::region() {
  const std::lock_guard lock(mutex_);
  return region_;
}

Result<HttpAnswer> Client::send(const Request& request) {
  const std::string region = this->region();
  DW_ASSIGN_OR_RETURN(HttpAnswer answer, send_with_fresh_keys(request, region));
  const std::string asked = region_asked_for(answer);
  if (asked.empty() || asked == region) return answer;
  {
    const std::lock_guard lock(mutex_);
    region_ = asked;
  }
  return send_with_fresh_keys(request, asked);
}

// Expired keys are renewed once, and the request, which was rejected, is sent again.
Result<HttpAnswer> Client::send_with_fresh_keys(const Request& request, const std::string& region) {
  DW_ASSIGN_OR_RETURN(const Credentials keys, credentials_->current());
  DW_ASSIGN_OR_RETURN(HttpAnswer answer, send_once(request, region, keys));
  if (!may_be_expired(request, answer) || !credentials_->renew(keys)) return answer;
  DW_ASSIGN_OR_RETURN(const Credentials renewed, credentials_->current());
  return send_once(request, region, renewed);
}

Result<HttpAnswer> Client::send_ok(const Request& request) {
  DW_ASSIGN_OR_RETURN(HttpAnswer answer, send(request));
  if (!answer.ok()) return failure(answer);
  return answer;
}

Result<HttpAnswer> Client::send_once(const Request& request, const std::string& region,
                                     const Credentials& credentials) {
  const Target target = address_.target(region, request.key);
  const std::string query = canonical_query(request.query);
  SigningScope scope;
  scope.region = region;
  scope.time = amz_time(unix_seconds());

  std::string sha256 = request.body_sha256;
  if (sha256.empty()) {
    DW_ASSIGN_OR_RETURN(sha256, sha256_of(request.body));
  }
  Pairs headers = request.headers;
  headers.emplace_back("host", target.host);
  headers.emplace_back("x-amz-content-sha256", sha256);
  headers.emplace_back("x-amz-date", scope.time);
  if (!credentials.session_token.empty()) {
    headers.emplace_back("x-amz-security-token", credentials.session_token);
  }

  HttpRequest http;
  http.method = request.method;
  http.url = target.scheme_and_host + target.path + (query.empty() ? "" : "?" + query);
  for (const auto& [name, value] : headers) http.headers.push_back(name + ": " + value);
  http.headers.push_back(
      "authorization: " +
      authorization({request.method, target.path, query, headers, sha256}, scope, credentials));
  http.body_size = request.body.size;
  http.read_body = [&range = request.body](uint64_t offset, std::span<uint8_t> out) {
    return range.body->read(range.offset + offset, out);
  };
  http.may_resend = request.may_resend;
  http.stall_seconds = call_timeout_seconds_;
  http.timeout_seconds =
      call_timeout_seconds_ * (1 + double(request.moved_bytes) * sharers_ / kBytesPerTimeout);
  http.on_bytes = request.on_bytes;
  const auto given_up = [&] { return request.cancelled != nullptr && request.cancelled->load(); };
  http.cancelled = [&given_up, late = after_grace(stop_requested, kGraceSeconds)] {
    return given_up() || late();
  };
  Result<HttpAnswer> answer = http_.perform(http);
  if (answer.status().code() != Code::kCancelled || given_up()) return answer;
  return unavailable("no answer within " + std::to_string(kGraceSeconds) +
                     " s of the request to stop");
}

// Empty: none. Servers tell it in a header (the only place a HEAD has) or in the error.
std::string Client::region_asked_for(const HttpAnswer& answer) const {
  if (answer.status != 301 && answer.status != 307 && answer.status != 400) return "";
  std::string region(answer.header("x-amz-bucket-region"));
  if (region.empty()) region = parse_error(answer.text).region;
  return check_region(region).ok() ? region : "";
}

// Without secrets that the server echoes.
std::string Client::shown(std::string_view text) {
  const Credentials credentials = credentials_->known();
  std::string out = hide_secret(std::string(text), Secret(credentials.secret_key));
  return printable(hide_secret(std::move(out), Secret(credentials.session_token)));
}

Status Client::failure(const HttpAnswer& answer) {
  ErrorAnswer error = parse_error(answer.text);
  if (error.request_id.empty()) error.request_id = answer.header("x-amz-request-id");
  std::string detail = "HTTP " + std::to_string(answer.status);
  if (!error.code.empty()) detail += " " + shown(error.code);
  if (!error.message.empty()) detail += ": " + shown(error.message);
  if (!error.request_id.empty()) detail += "; request id " + shown(error.request_id);

  if (is_passing(error.code)) return unavailable("the server asks to try again (" + detail + ")");
  switch (answer.status) {
    case 301:
    case 307:
      return io_error("the bucket is in another region (" + detail + ")");
    case 401:
    case 403:
      return io_error("access denied (" + detail + ")");
    case 404:
      return not_found(error.code == "NoSuchBucket" ? "no such bucket (" + detail + ")"
                                                    : "no such object (" + detail + ")");
    case 408:
    case 409:
    case 425:
    case 429:
      return unavailable("the server asks to try again (" + detail + ")");
    case 501:
      return unsupported("the server does not support this (" + detail + ")");
    default:
      break;
  }
  if (answer.status >= 500) return unavailable("the server failed (" + detail + ")");
  return io_error("the server refused (" + detail + ")");
}

}  // namespace deltawire::s3
