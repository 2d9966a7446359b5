#include "store/s3/wire/http.h"

#include <curl/curl.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <optional>

#include "base/guard.h"
#include "base/stop.h"

namespace deltawire::s3 {
namespace {

constexpr double kMaxConnectSeconds = 10;
constexpr long kBufferBytes = 256 << 10;
constexpr size_t kMaxHeaderBytes = 4096;
constexpr size_t kMaxHeaders = 200;
constexpr std::chrono::seconds kAfterStop{5};  // that an answer may still take

// What the callbacks of one request share.
struct Transfer {
  const HttpRequest* request;
  HttpAnswer answer;
  uint64_t sent = 0;
  Status failed;  // of Body, Sink or a limit: more telling than libcurl's "write error"
  std::optional<std::chrono::steady_clock::time_point> stop_seen = {};
};

bool is_cancelled(const Transfer& transfer) {
  return transfer.request->cancelled != nullptr && transfer.request->cancelled->load();
}

size_t read_body(char* out, size_t size, size_t count, void* user) {
  Transfer& transfer = *static_cast<Transfer*>(user);
  const BodyRange& range = transfer.request->body;
  if (is_cancelled(transfer)) return CURL_READFUNC_ABORT;
  const uint64_t n = std::min<uint64_t>(size * count, range.size - transfer.sent);
  if (n == 0) return 0;
  transfer.failed = guard_memory("reading what is sent", [&] {
    return range.body->read(range.offset + transfer.sent,
                            {reinterpret_cast<uint8_t*>(out), size_t(n)});
  });
  if (!transfer.failed.ok()) return CURL_READFUNC_ABORT;
  transfer.sent += n;
  return size_t(n);
}

// libcurl rewinds to send again on a fresh connection.
int seek_body(void* user, curl_off_t offset, int origin) {
  Transfer& transfer = *static_cast<Transfer*>(user);
  if (origin != SEEK_SET || offset < 0 || uint64_t(offset) > transfer.request->body.size) {
    return CURL_SEEKFUNC_FAIL;
  }
  if (!transfer.request->may_resend) return CURL_SEEKFUNC_FAIL;
  transfer.sent = uint64_t(offset);
  return CURL_SEEKFUNC_OK;
}

size_t take_header(char* line, size_t size, size_t count, void* user) {
  Transfer& transfer = *static_cast<Transfer*>(user);
  std::string_view text(line, size * count);
  while (!text.empty() && (text.back() == '\r' || text.back() == '\n')) text.remove_suffix(1);
  if (text.starts_with("HTTP/")) {  // a new answer: the one before was a "100 Continue"
    transfer.answer.headers.clear();
    const size_t space = text.find(' ');
    transfer.answer.status = space == text.npos ? 0 : std::atoi(line + space + 1);
    return size * count;
  }
  const size_t colon = text.find(':');
  if (colon == text.npos || text.size() > kMaxHeaderBytes ||
      transfer.answer.headers.size() == kMaxHeaders) {
    return size * count;  // not one of those we look at
  }
  std::string name(text.substr(0, colon));
  for (char& c : name) {
    if (c >= 'A' && c <= 'Z') c = char(c - 'A' + 'a');
  }
  text.remove_prefix(colon + 1);
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  transfer.answer.headers[std::move(name)] = text;
  return size * count;
}

size_t take_bytes(char* data, size_t size, size_t count, void* user) {
  Transfer& transfer = *static_cast<Transfer*>(user);
  const size_t n = size * count;
  if (is_cancelled(transfer)) return CURL_WRITEFUNC_ERROR;
  if (transfer.answer.ok() && transfer.request->on_bytes) {
    transfer.failed = guard_memory("taking what came", [&] {
      return transfer.request->on_bytes(transfer.answer,
                                        {reinterpret_cast<const uint8_t*>(data), n});
    });
    return transfer.failed.ok() ? n : CURL_WRITEFUNC_ERROR;
  }
  if (transfer.answer.text.size() + n > HttpPool::kMaxTextBytes) {
    transfer.failed = corruption("the answer is larger than " +
                                 std::to_string(HttpPool::kMaxTextBytes) + " bytes");
    return CURL_WRITEFUNC_ERROR;
  }
  transfer.answer.text.append(data, n);
  return n;
}

int look_around(void* user, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
  Transfer& transfer = *static_cast<Transfer*>(user);
  if (is_cancelled(transfer)) return 1;
  if (!stop_requested()) return 0;
  const auto now = std::chrono::steady_clock::now();
  if (!transfer.stop_seen) transfer.stop_seen = now;
  return now - *transfer.stop_seen > kAfterStop ? 1 : 0;
}

std::string seconds_text(double seconds) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g s", seconds);
  return text;
}

Status transport_failure(CURLcode code, const char* detail, const HttpRequest& request) {
  std::string what = curl_easy_strerror(code);
  if (detail[0] != '\0') what.append(" (").append(detail).append(")");
  switch (code) {
    case CURLE_OPERATION_TIMEDOUT:
      return unavailable("not done within its deadline of " +
                         seconds_text(request.timeout_seconds) + " (" + detail + ")");
    case CURLE_ABORTED_BY_CALLBACK:
      return unavailable("no answer within " + std::to_string(kAfterStop.count()) +
                         " s of the request to stop");
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_ISSUER_ERROR:
      return io_error("the server's certificate is not trusted: " + what);
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_CERTPROBLEM:
      return io_error("the file of trusted certificates cannot be used: " + what);
    case CURLE_UNSUPPORTED_PROTOCOL:
      return io_error("the server does not speak HTTP: " + what);
    case CURLE_URL_MALFORMAT:
    case CURLE_NOT_BUILT_IN:
      return invalid_argument(what);
    case CURLE_OUT_OF_MEMORY:
      return out_of_memory(what);
    default:
      return unavailable(what);
  }
}

struct HeaderList {
  curl_slist* head = nullptr;
  ~HeaderList() { curl_slist_free_all(head); }
  void add(const std::string& line) { head = curl_slist_append(head, line.c_str()); }
};

void describe(CURL* curl, const HttpRequest& request, const std::string& ca_file) {
  curl_easy_setopt(curl, CURLOPT_URL, request.url.c_str());
  curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(curl, CURLOPT_HTTP_VERSION, long(CURL_HTTP_VERSION_1_1));
  curl_easy_setopt(curl, CURLOPT_PATH_AS_IS, 1L);
  curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(curl, CURLOPT_TCP_KEEPALIVE, 1L);
  curl_easy_setopt(curl, CURLOPT_BUFFERSIZE, kBufferBytes);
  curl_easy_setopt(curl, CURLOPT_UPLOAD_BUFFERSIZE, kBufferBytes);
  curl_easy_setopt(curl, CURLOPT_SSL_VERIFYPEER, 1L);
  curl_easy_setopt(curl, CURLOPT_SSL_VERIFYHOST, 2L);
  curl_easy_setopt(curl, CURLOPT_SSLVERSION, long(CURL_SSLVERSION_TLSv1_2));
  // Beside the system's folder of authorities, which stays in force.
  if (!ca_file.empty()) curl_easy_setopt(curl, CURLOPT_CAINFO, ca_file.c_str());
  if (request.past_proxies) curl_easy_setopt(curl, CURLOPT_PROXY, "");

  const double seconds = std::clamp(request.timeout_seconds, 0.001, 1e6);
  curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, long(seconds * 1000));
  curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT_MS,
                   long(std::min(seconds, kMaxConnectSeconds) * 1000));

  curl_easy_setopt(curl, CURLOPT_LOW_SPEED_LIMIT, 1L);
  curl_easy_setopt(curl, CURLOPT_LOW_SPEED_TIME, long(std::max(1.0, request.stall_seconds)));

  curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, request.method.c_str());
  if (request.method == "HEAD") curl_easy_setopt(curl, CURLOPT_NOBODY, 1L);
  if (request.method == "PUT" || request.method == "POST") {
    curl_easy_setopt(curl, CURLOPT_UPLOAD, 1L);
    curl_easy_setopt(curl, CURLOPT_INFILESIZE_LARGE, curl_off_t(request.body.size));
  }
}

void connect_callbacks(CURL* curl, Transfer* transfer) {
  curl_easy_setopt(curl, CURLOPT_READFUNCTION, read_body);
  curl_easy_setopt(curl, CURLOPT_READDATA, transfer);
  curl_easy_setopt(curl, CURLOPT_SEEKFUNCTION, seek_body);
  curl_easy_setopt(curl, CURLOPT_SEEKDATA, transfer);
  curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, take_header);
  curl_easy_setopt(curl, CURLOPT_HEADERDATA, transfer);
  curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, take_bytes);
  curl_easy_setopt(curl, CURLOPT_WRITEDATA, transfer);
  curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, look_around);
  curl_easy_setopt(curl, CURLOPT_XFERINFODATA, transfer);
  curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
}

}  // namespace

std::string_view HttpAnswer::header(std::string_view name) const {
  const auto found = headers.find(name);
  return found == headers.end() ? std::string_view() : found->second;
}

HttpPool::HttpPool(std::string ca_file, unsigned max_idle)
    : ca_file_(std::move(ca_file)), max_idle_(max_idle) {
  // Thread-safe in every libcurl we build with, and counted: nothing is ever torn down under
  // another user of libcurl in the process.
  static const CURLcode initialised = curl_global_init(CURL_GLOBAL_DEFAULT);
  static_cast<void>(initialised);  // without it curl_easy_init returns null
}

HttpPool::~HttpPool() {
  for (void* handle : idle_) curl_easy_cleanup(handle);
}

void* HttpPool::take() {
  const std::lock_guard lock(mutex_);
  if (idle_.empty()) return curl_easy_init();
  void* handle = idle_.back();
  idle_.pop_back();
  return handle;
}

void HttpPool::give_back(void* handle) {
  curl_easy_reset(handle);  // keeps its connection
  {
    const std::lock_guard lock(mutex_);
    if (idle_.size() < max_idle_) {
      idle_.push_back(handle);
      return;
    }
  }
  curl_easy_cleanup(handle);
}

Result<HttpAnswer> HttpPool::perform(const HttpRequest& request) {
  CURL* const curl = take();
  if (curl == nullptr) return out_of_memory("libcurl gives no handle");
  Transfer transfer{&request, {}, 0, {}, {}};
  HeaderList headers;
  for (const std::string& line : request.headers) headers.add(line);
  headers.add("Expect:");  // one round trip less for every upload
  char detail[CURL_ERROR_SIZE] = "";
  describe(curl, request, ca_file_);
  connect_callbacks(curl, &transfer);
  curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers.head);
  curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, detail);
  const CURLcode code = curl_easy_perform(curl);
  give_back(curl);

  if (!transfer.failed.ok()) return std::move(transfer.failed);
  if (code == CURLE_OK) return std::move(transfer.answer);
  // A server may refuse and hang up while we still send: what it said counts.
  if (transfer.answer.status >= 300) return std::move(transfer.answer);
  if (is_cancelled(transfer)) return cancelled("the request was given up");
  return transport_failure(code, detail, request);
}

}  // namespace deltawire::s3
