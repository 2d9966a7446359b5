#include <algorithm>
#include <map>
#include <mutex>
#include <utility>

#include "store/directory_store.h"
#include "store/http_store.h"
#include "store/memory_store.h"
#include "store/rate_limited_store.h"
#include "store/retrying_store.h"
#ifdef DELTAWIRE_HAVE_S3
#include "store/s3_store.h"
#endif

namespace deltawire {
namespace {

// Never destroyed: a name refers to the same store for the life of the process, and threads may
// outlive main().
std::shared_ptr<Store> named_memory(const std::string& name) {
  static std::mutex mutex;
  static auto& stores = *new std::map<std::string, std::shared_ptr<Store>>;
  const std::lock_guard lock(mutex);
  std::shared_ptr<Store>& store = stores[name];
  if (store == nullptr) store = std::make_shared<MemoryStore>(name);
  return store;
}

Result<std::shared_ptr<Store>> open_bucket(const std::string& url, const StoreOptions& options) {
  const std::string rest = url.substr(url.find("://") + 3);
  const size_t slash = rest.find('/');
  const std::string bucket = rest.substr(0, slash);
  std::string prefix = slash == std::string::npos ? "" : rest.substr(slash + 1);
  while (prefix.ends_with('/')) prefix.pop_back();
  if (bucket.empty()) return invalid_argument(url + ": no bucket; write s3://BUCKET/PREFIX");
  if (!prefix.empty()) {
    Status good = check_object_name(prefix);
    if (!good.ok()) return std::move(good).at(url);
  }
#ifdef DELTAWIRE_HAVE_S3
  StoreOptions patient = options;
  if (options.max_bytes_per_second != 0) {
    // Requests delayed by the rate limit must not exceed their deadline, which counts in units of
    // 64 MiB.
    const double turn = 2.0 * double(uint64_t{64} << 20) / double(options.max_bytes_per_second);
    patient.call_timeout_seconds = std::max(patient.call_timeout_seconds, turn);
  }
  return open_s3_store(bucket, prefix, patient);
#else
  static_cast<void>(options);
  return unsupported(url + ": this build of deltawire has no S3 (libcurl or expat was not found)");
#endif
}

Result<std::string> percent_decoded(const std::string& url, const std::string& text) {
  std::string out;
  for (size_t at = 0; at < text.size(); ++at) {
    if (text[at] != '%') {
      out.push_back(text[at]);
      continue;
    }
    const std::string digits = text.substr(at + 1, 2);
    if (digits.size() != 2 || digits.find_first_not_of("0123456789abcdefABCDEF") != digits.npos) {
      return invalid_argument(url + ": % is not followed by two hex digits");
    }
    if (digits == "00") return invalid_argument(url + ": holds a zero byte");
    out.push_back(char(std::stoi(digits, nullptr, 16)));
    at += 2;
  }
  return out;
}

Result<std::shared_ptr<Store>> open_folder_url(const std::string& url, const StoreOptions&) {
  std::string rest = url.substr(url.find("://") + 3);
  if (rest.starts_with("localhost/")) rest.erase(0, rest.find('/'));
  if (!rest.starts_with('/')) {
    return invalid_argument(url + ": names another host; write file:///PATH");
  }
  DW_ASSIGN_OR_RETURN(const std::string path, percent_decoded(url, rest));
  return std::shared_ptr<Store>(std::make_shared<DirectoryStore>(path));
}

Result<std::shared_ptr<Store>> open_memory(const std::string& url, const StoreOptions&) {
  return named_memory(url.substr(url.find(':') + 1));
}

Result<std::shared_ptr<Store>> open_path(const std::string& path, const StoreOptions&) {
  return std::shared_ptr<Store>(std::make_shared<DirectoryStore>(path));
}

struct Scheme {
  std::string_view prefix;
  Result<std::shared_ptr<Store>> (*open)(const std::string& url, const StoreOptions& options);
  BodyReads reads = BodyReads::kOnce;
};

constexpr Scheme kSchemes[] = {{"s3://", open_bucket, BodyReads::kTwice},
                               {"http://", open_http_store},
                               {"https://", open_http_store},
                               {"file://", open_folder_url},
                               {"memory:", open_memory}};

bool is_host_and_port(std::string_view text) {
  const size_t colon = text.rfind(':');
  return colon != text.npos && colon != 0 && colon + 1 < text.size() &&
         text.find('/') == text.npos &&
         text.find_first_not_of("0123456789", colon + 1) == text.npos;
}

// Without a scheme it is a path, or a mistake.
Result<Scheme> scheme_of(const std::string& url) {
  for (const Scheme& scheme : kSchemes) {
    if (url.starts_with(scheme.prefix)) return scheme;
  }
  if (url.empty()) return invalid_argument("the store's name is empty");
  if (is_store_url(url)) {
    return unsupported(url +
                       ": no such kind of store; write s3://BUCKET/PREFIX, http://HOST:PORT, " +
                       "file:///PATH, memory:NAME or a path");
  }
  for (const std::string_view right :
       {"s3://BUCKET/PREFIX", "http://HOST:PORT", "https://HOST:PORT", "file:///PATH"}) {
    if (!url.starts_with(right.substr(0, right.find(':') + 1))) continue;
    return invalid_argument(url + ": no bucket or host; write " + std::string(right) + ", or ./" +
                            url + " for a folder of that name");
  }
  if (is_host_and_port(url)) {
    return invalid_argument(url + ": write http://" + url + ", or ./" + url +
                            " for a folder of that name");
  }
  return Scheme{"", open_path};
}

}  // namespace

bool is_store_url(std::string_view place) {
  return place.find("://") != place.npos || place.starts_with("memory:");
}

// From inside out: retries see every failure, and the rate limit applies to each attempt.
Result<std::shared_ptr<Store>> open_store(const std::string& url, const StoreOptions& options) {
  DW_ASSIGN_OR_RETURN(const Scheme scheme, scheme_of(url));
  DW_ASSIGN_OR_RETURN(std::shared_ptr<Store> store, scheme.open(url, options));
  if (options.wrap) {
    DW_ASSIGN_OR_RETURN(store, options.wrap(std::move(store)));
  }
  if (options.max_bytes_per_second != 0) {
    store = std::make_shared<RateLimitedStore>(std::move(store), options.max_bytes_per_second,
                                               scheme.reads);
  }
  // Bare memory is never unavailable, and servers send it without copying only if it is bare.
  if (options.retries != 0 && dynamic_cast<MemoryStore*>(store.get()) == nullptr) {
    RetryPolicy policy;
    policy.retries = options.retries;
    store = std::make_shared<RetryingStore>(std::move(store), policy);
  }
  return store;
}

}  // namespace deltawire
