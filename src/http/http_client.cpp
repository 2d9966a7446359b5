#include "http/http_client.h"

#ifdef DELTAWIRE_HAVE_CURL

#include <curl/curl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "base/guard.h"
#include "base/text.h"

namespace deltawire {
namespace {

constexpr double kMaxConnectSeconds = 10;
constexpr long kBufferBytes = 256 << 10;
constexpr size_t kMaxHeaderBytes = 4096;
constexpr size_t kMaxHeaders = 200;

// What the callbacks of one request share.
struct Transfer {
  const HttpRequest& request;
  HttpAnswer answer = {};
  uint64_t sent = 0;
  Status failed = {};  // of a body or a limit: says more than libcurl's "write error"
  bool cancelled = false;

  bool check_cancelled() {
    return cancelled = cancelled || (request.cancelled && request.cancelled());
  }
};

size_t read_body(char* out, size_t size, size_t count, void* user) {
  Transfer& transfer = *static_cast<Transfer*>(user);
  if (transfer.check_cancelled()) return CURL_READFUNC_ABORT;
  const uint64_t n = std::min<uint64_t>(size * count, transfer.request.body_size - transfer.sent);
  if (n == 0) return 0;
  transfer.failed = guard_memory("reading what is sent", [&] {
    return transfer.request.read_body(transfer.sent, {reinterpret_cast<uint8_t*>(out), size_t(n)});
  });
  if (!transfer.failed.ok()) return CURL_READFUNC_ABORT;
  transfer.sent += n;
  return size_t(n);
}

// libcurl rewinds to send again on a new connection.
int seek_body(void* user, curl_off_t offset, int origin) {
  Transfer& transfer = *static_cast<Transfer*>(user);
  if (origin != SEEK_SET || offset < 0 || uint64_t(offset) > transfer.request.body_size ||
      !transfer.request.may_resend) {
    return CURL_SEEKFUNC_FAIL;
  }
  transfer.sent = uint64_t(offset);
  return CURL_SEEKFUNC_OK;
}

size_t take_header(char* line, size_t size, size_t count, void* user) {
  HttpAnswer& answer = static_cast<Transfer*>(user)->answer;
  std::string_view text(line, size * count);
  text = text.substr(0, text.find_last_not_of("\r\n") + 1);
  if (text.starts_with("HTTP/")) {  // a new answer after a "100 Continue"
    answer.headers.clear();
    const size_t space = text.find(' ');
    answer.status = space == text.npos ? 0 : std::atoi(line + space + 1);
    return size * count;
  }
  const size_t colon = text.find(':');
  if (colon == text.npos || text.size() > kMaxHeaderBytes || answer.headers.size() == kMaxHeaders) {
    return size * count;  // not one of those we look at
  }
  std::string name = lower_case(text.substr(0, colon));
  text.remove_prefix(std::min(text.size(), text.find_first_not_of(' ', colon + 1)));
  answer.headers[std::move(name)] = text;
  return size * count;
}

size_t take_bytes(char* data, size_t size, size_t count, void* user) {
  Transfer& transfer = *static_cast<Transfer*>(user);
  const size_t n = size * count;
  if (transfer.check_cancelled()) return CURL_WRITEFUNC_ERROR;
  transfer.failed = guard_memory("taking what came", [&]() -> Status {
    if (transfer.answer.ok() && transfer.request.on_bytes) {
      return transfer.request.on_bytes(transfer.answer,
                                       {reinterpret_cast<const uint8_t*>(data), n});
    }
    if (transfer.answer.text.size() + n > HttpClient::kMaxTextBytes) {
      return corruption("the answer is larger than " + std::to_string(HttpClient::kMaxTextBytes) +
                        " bytes");
    }
    transfer.answer.text.append(data, n);
    return {};
  });
  return transfer.failed.ok() ? n : CURL_WRITEFUNC_ERROR;
}

int check_progress(void* user, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
  return static_cast<Transfer*>(user)->check_cancelled() ? 1 : 0;
}

Status transport_failure(CURLcode code, const char* detail, const HttpRequest& request) {
  const std::string what = detail[0] != '\0' ? detail : curl_easy_strerror(code);
  switch (code) {
    case CURLE_OPERATION_TIMEDOUT: {
      char seconds[32];
      std::snprintf(seconds, sizeof seconds, "%.3g", request.timeout_seconds);
      return unavailable(std::string("no answer in ") + seconds + " s (" + what + ")");
    }
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

// The system's certificate authorities. libcurl uses the path of the distribution that it was built
// on, but a wheel runs on others.
const char* system_authorities() {
  static const char* const found = []() -> const char* {
    for (const char* path : {"/etc/ssl/certs/ca-certificates.crt",  // Debian, Ubuntu, Alpine
                             "/etc/pki/tls/certs/ca-bundle.crt",    // Red Hat, Amazon
                             "/etc/ssl/ca-bundle.pem"}) {           // SUSE
      if (access(path, R_OK) == 0) return path;
    }
    return nullptr;
  }();
  return found;
}

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
  // In addition to the system's folder of authorities.
  const char* const authorities = ca_file.empty() ? system_authorities() : ca_file.c_str();
  if (authorities != nullptr) curl_easy_setopt(curl, CURLOPT_CAINFO, authorities);
  if (!request.use_proxy) curl_easy_setopt(curl, CURLOPT_PROXY, "");

  const double seconds = std::clamp(request.timeout_seconds, 0.001, 1e6);
  curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, long(seconds * 1000));
  curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT_MS,
                   long(std::min(seconds, kMaxConnectSeconds) * 1000));
  if (request.stall_seconds > 0) {
    curl_easy_setopt(curl, CURLOPT_LOW_SPEED_LIMIT, 1L);
    curl_easy_setopt(curl, CURLOPT_LOW_SPEED_TIME, long(std::max(1.0, request.stall_seconds)));
  }

  curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, request.method.c_str());
  if (request.method == "HEAD") curl_easy_setopt(curl, CURLOPT_NOBODY, 1L);
  if (request.method == "PUT" || request.method == "POST") {
    curl_easy_setopt(curl, CURLOPT_UPLOAD, 1L);
    curl_easy_setopt(curl, CURLOPT_INFILESIZE_LARGE, curl_off_t(request.body_size));
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
  curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, check_progress);
  curl_easy_setopt(curl, CURLOPT_XFERINFODATA, transfer);
  curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
}

}  // namespace

bool http_supported() noexcept { return true; }

HttpClient::HttpClient(std::string ca_file, unsigned max_idle, std::string client_cert)
    : ca_file_(std::move(ca_file)), client_cert_(std::move(client_cert)), max_idle_(max_idle) {
  // Thread-safe in all supported versions of libcurl and reference-counted; never cleaned up, as
  // others in the process may use libcurl.
  static const CURLcode initialised = curl_global_init(CURL_GLOBAL_DEFAULT);
  static_cast<void>(initialised);  // without it curl_easy_init returns null
}

HttpClient::~HttpClient() {
  for (void* handle : idle_) curl_easy_cleanup(handle);
}

void* HttpClient::take() {
  const std::lock_guard lock(mutex_);
  if (idle_.empty()) return curl_easy_init();
  void* handle = idle_.back();
  idle_.pop_back();
  return handle;
}

void HttpClient::give_back(void* handle) {
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

Result<HttpAnswer> HttpClient::perform(const HttpRequest& request) {
  CURL* const curl = take();
  if (curl == nullptr) return out_of_memory("libcurl cannot create a handle");
  Transfer transfer{request};
  HeaderList headers;
  for (const std::string& line : request.headers) headers.add(line);
  headers.add("Expect:");  // one round trip less for every upload
  char detail[CURL_ERROR_SIZE] = "";
  describe(curl, request, ca_file_);
  if (!client_cert_.empty()) {
    curl_easy_setopt(curl, CURLOPT_SSLCERT, client_cert_.c_str());
    curl_easy_setopt(curl, CURLOPT_SSLKEY, client_cert_.c_str());
  }
  connect_callbacks(curl, &transfer);
  curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers.head);
  curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, detail);
  const CURLcode code = curl_easy_perform(curl);
  give_back(curl);

  if (!transfer.failed.ok()) return std::move(transfer.failed);
  if (code == CURLE_OK) return std::move(transfer.answer);
  if (transfer.cancelled) return cancelled("stopped on request");
  // A server may answer and close the connection while we still send: its answer counts.
  if (transfer.answer.status >= 300) return std::move(transfer.answer);
  return transport_failure(code, detail, request);
}

int64_t parse_http_date(std::string_view text) {
  return std::max<int64_t>(0, int64_t(curl_getdate(std::string(text).c_str(), nullptr)));
}

}  // namespace deltawire

#else

namespace deltawire {

bool http_supported() noexcept { return false; }
HttpClient::HttpClient(std::string ca_file, unsigned max_idle, std::string client_cert)
    : ca_file_(std::move(ca_file)), client_cert_(std::move(client_cert)), max_idle_(max_idle) {}
HttpClient::~HttpClient() = default;
Result<HttpAnswer> HttpClient::perform(const HttpRequest&) {
  return unsupported("this build of deltawire has no libcurl");
}
int64_t parse_http_date(std::string_view) { return 0; }

}  // namespace deltawire

#endif
