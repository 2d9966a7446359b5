#include "notify/transfer.h"

#ifdef DELTAWIRE_HAVE_CURL

#include <curl/curl.h>

#include <algorithm>
#include <memory>
#include <mutex>

namespace deltawire {
namespace {

constexpr size_t kMaxReplyBytes = 64 << 10;
constexpr long kMaxConnectMs = 10'000;

struct Deleter {
  void operator()(CURL* handle) const { curl_easy_cleanup(handle); }
  void operator()(curl_slist* list) const { curl_slist_free_all(list); }
};
using Handle = std::unique_ptr<CURL, Deleter>;

// Headers are copied into libcurl's list; none of them ever becomes text of ours.
class HeaderList {
 public:
  void add(const std::string& line) {
    curl_slist* longer = curl_slist_append(list_.get(), line.c_str());
    if (longer == nullptr) return;
    (void)list_.release();
    list_.reset(longer);
  }
  curl_slist* get() const { return list_.get(); }

 private:
  std::unique_ptr<curl_slist, Deleter> list_;
};

// Takes what fits; the rest of a long answer is read and dropped.
size_t take_body(char* data, size_t size, size_t count, void* into) {
  auto* body = static_cast<std::string*>(into);
  body->append(data, std::min(size * count, kMaxReplyBytes - body->size()));
  return size * count;
}

int stop_if_asked(void* request, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
  return static_cast<const HttpRequest*>(request)->stop() ? 1 : 0;
}

HeaderList headers_of(const HttpRequest& request) {
  HeaderList headers;
  headers.add("Content-Type: application/json");
  headers.add("Expect:");  // no waiting for "100 Continue"
  if (!request.api_key.empty()) headers.add("Authorization: Bearer " + request.api_key.reveal());
  return headers;
}

void set_up(CURL* curl, const HttpRequest& request, const HeaderList& headers, std::string* body) {
  const long timeout_ms = std::max(1L, long(std::min(request.timeout_seconds, 1e6) * 1000));
  curl_easy_setopt(curl, CURLOPT_URL, request.url.c_str());
  curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 0L);
  curl_easy_setopt(curl, CURLOPT_PROXY, "");
  curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, timeout_ms);
  curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT_MS, std::min(timeout_ms, kMaxConnectMs));
  curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers.get());
  curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, take_body);
  curl_easy_setopt(curl, CURLOPT_WRITEDATA, body);
  if (request.stop) {
    curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, stop_if_asked);
    curl_easy_setopt(curl, CURLOPT_XFERINFODATA, &request);
  }
  if (request.method == "POST") {
    curl_easy_setopt(curl, CURLOPT_POST, 1L);
    curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, curl_off_t(request.body.size()));
    curl_easy_setopt(curl, CURLOPT_POSTFIELDS, request.body.c_str());
  }
}

Status failure_of(CURLcode code, const char* detail, double timeout_seconds) {
  std::string message = detail[0] != '\0' ? detail : curl_easy_strerror(code);
  switch (code) {
    case CURLE_OPERATION_TIMEDOUT: {
      char text[32];
      std::snprintf(text, sizeof text, "%g", timeout_seconds);
      return unavailable(std::string("no answer in ") + text + " s");
    }
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_CONNECT:
    case CURLE_SEND_ERROR:
    case CURLE_RECV_ERROR:
    case CURLE_GOT_NOTHING:
    case CURLE_PARTIAL_FILE:
    case CURLE_SSL_CONNECT_ERROR:
      return unavailable(std::move(message));
    case CURLE_ABORTED_BY_CALLBACK:
      return cancelled("stopped on request");
    case CURLE_OUT_OF_MEMORY:
      return out_of_memory(std::move(message));
    default:
      return io_error(std::move(message));
  }
}

}  // namespace

bool http_supported() noexcept { return true; }

Result<HttpReply> transfer(const HttpRequest& request) {
  static std::once_flag once;
  std::call_once(once, [] { curl_global_init(CURL_GLOBAL_DEFAULT); });
  const Handle curl(curl_easy_init());
  if (curl == nullptr) return out_of_memory("libcurl could not start a transfer");
  HttpReply reply;
  char detail[CURL_ERROR_SIZE] = "";
  const HeaderList headers = headers_of(request);
  set_up(curl.get(), request, headers, &reply.body);
  curl_easy_setopt(curl.get(), CURLOPT_ERRORBUFFER, detail);
  const CURLcode code = curl_easy_perform(curl.get());
  if (code != CURLE_OK) return failure_of(code, detail, request.timeout_seconds);
  long status = 0;
  curl_easy_getinfo(curl.get(), CURLINFO_RESPONSE_CODE, &status);
  reply.status = int(status);
  return reply;
}

}  // namespace deltawire

#else

namespace deltawire {

bool http_supported() noexcept { return false; }

Result<HttpReply> transfer(const HttpRequest&) {
  return unsupported("this build of deltawire has no libcurl");
}

}  // namespace deltawire

#endif
