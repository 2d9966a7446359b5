// From a URL and its options to a store with everything around it.
#include <algorithm>
#include <map>
#include <mutex>

#include "deltawire/store.h"
#include "store/directory_store.h"
#include "store/memory_store.h"
#include "store/metered_store.h"
#include "store/rate_limited_store.h"
#include "store/retrying_store.h"
#include "store/schemes.h"
#ifdef DELTAWIRE_HAVE_S3
#include "store/s3_store.h"
#endif

namespace deltawire {
namespace {

// Kept for the life of the process, to its very end: a name means the same store whenever it is
// opened, and threads may outlive main().
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
    // Requests that wait for their turn must not run into their deadline, which counts in 64 MiB.
    const double turn = 2.0 * double(uint64_t{64} << 20) / double(options.max_bytes_per_second);
    patient.call_timeout_seconds = std::max(patient.call_timeout_seconds, turn);
  }
  return open_s3_store(bucket, prefix, patient);
#else
  static_cast<void>(options);
  return unsupported(url + ": this build has no S3 (libcurl was not found)");
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

Result<std::shared_ptr<Store>> open_folder_url(const std::string& url) {
  std::string rest = url.substr(url.find("://") + 3);
  if (rest.starts_with("localhost/")) rest.erase(0, rest.find('/'));
  if (!rest.starts_with('/')) {
    return invalid_argument(url + ": names another host; write file:///PATH");
  }
  DW_ASSIGN_OR_RETURN(const std::string path, percent_decoded(url, rest));
  return std::shared_ptr<Store>(std::make_shared<DirectoryStore>(path));
}

Result<std::shared_ptr<Store>> open_base(const std::string& url, const StoreOptions& options) {
  if (url.empty()) return invalid_argument("the store's name is empty");
  if (url.starts_with("s3://")) return open_bucket(url, options);
  if (url.starts_with("file://")) return open_folder_url(url);
  if (url.starts_with("memory:")) return named_memory(url.substr(std::string("memory:").size()));
  if (const OpenScheme open = find_store_scheme(url)) return open(url, options);
  if (url.find("://") != url.npos) {
    return unsupported(url + ": no such kind of store; write s3://BUCKET/PREFIX, file:///PATH, " +
                       "memory:NAME or a path");
  }
  if (url.starts_with("s3:")) {
    return invalid_argument(url + ": no bucket; write s3://BUCKET/PREFIX, or ./" + url +
                            " for a folder of that name");
  }
  return std::shared_ptr<Store>(std::make_shared<DirectoryStore>(url));
}

}  // namespace

// Inside out: retries see every failure, and each of their attempts is counted and limited.
Result<std::shared_ptr<Store>> open_store(const std::string& url, const StoreOptions& options) {
  DW_ASSIGN_OR_RETURN(std::shared_ptr<Store> store, open_base(url, options));
  if (options.wrap) {
    DW_ASSIGN_OR_RETURN(store, options.wrap(std::move(store)));
  }
  if (options.max_bytes_per_second != 0) {
    const BodyReads reads = url.starts_with("s3://") ? BodyReads::kTwice : BodyReads::kOnce;
    store =
        std::make_shared<RateLimitedStore>(std::move(store), options.max_bytes_per_second, reads);
  }
  if (options.metrics != nullptr) {
    store = std::make_shared<MeteredStore>(std::move(store), options.metrics);
  }
  if (options.retries != 0) {
    RetryPolicy policy;
    policy.retries = options.retries;
    store = std::make_shared<RetryingStore>(std::move(store), policy, options.metrics);
  }
  return store;
}

}  // namespace deltawire
