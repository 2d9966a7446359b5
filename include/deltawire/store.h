// Stores hold the objects of a chain by name, without knowing their contents.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "deltawire/status.h"

namespace deltawire {

// Names are relative paths of [A-Za-z0-9._-] and '/': at most 512 bytes, no empty component, none
// that begins with a dot or has more than 255 bytes. InvalidArgument otherwise: nothing ever leaves
// the store's prefix. A name is not also a folder of other names.
Status check_object_name(std::string_view name);
// A valid prefix of a listing: the beginning of a name, or empty.
Status check_object_prefix(std::string_view prefix);

inline constexpr size_t kMaxListed = 1000;  // objects, by one call of Store::list()

struct ObjectInfo {
  std::string name;
  uint64_t size_bytes = 0;
  int64_t modified = 0;  // seconds since 1970
};

struct Capabilities {
  // Of racing writers of one name exactly one succeeds. Without it only a single writer is safe.
  bool put_if_absent = true;
};

// The bytes of an object to put. They are read at any offset, more than once (a retry reads them
// again) and from several threads.
class Body {
 public:
  virtual ~Body() = default;
  virtual uint64_t size() const noexcept = 0;
  // Fills `out` from `offset`; the range lies inside the body.
  virtual Status read(uint64_t offset, std::span<uint8_t> out) const = 0;
};

// Bytes that outlive the call.
class MemoryBody final : public Body {
 public:
  explicit MemoryBody(std::span<const uint8_t> bytes) : bytes_(bytes) {}
  explicit MemoryBody(std::string_view text);
  uint64_t size() const noexcept override { return bytes_.size(); }
  Status read(uint64_t offset, std::span<uint8_t> out) const override;

 private:
  std::span<const uint8_t> bytes_;
};

// Takes pieces of an object as they arrive, in any order, from several threads at once. A piece may
// come again: a retry sends what a failed attempt already had.
class Sink {
 public:
  virtual ~Sink() = default;
  virtual Status write(uint64_t offset, std::span<const uint8_t> bytes) = 0;
};

// Thread safety: every method may be called from any thread at any time.
// Failures: NotFound (no such object), Conflict (put_if_absent of a name that is there),
// Unavailable (worth a retry: the network, a 5xx, a deadline), Corruption (a checksum that does not
// hold), Io, InvalidArgument (name), Unsupported (the server has no conditional PUT, no ranges).
// Messages name store and object, and never hold a secret. Every call ends: by a deadline, or on a
// local disk.
class Store {
 public:
  virtual ~Store() = default;

  virtual std::string url() const = 0;  // for messages; no secrets
  // May ask the server once; the answer is kept.
  virtual Result<Capabilities> capabilities() = 0;

  // Durable when it returns Ok: an object is there whole or not at all. After Unavailable it may or
  // may not be there.
  virtual Status put(std::string_view name, const Body& body) = 0;
  // Conflict when the name is taken. For small objects: commit records.
  virtual Status put_if_absent(std::string_view name, const Body& body) = 0;

  virtual Result<ObjectInfo> stat(std::string_view name) = 0;
  // A small object whole, as one put left it; Corruption when it is larger than `max_bytes`.
  virtual Result<std::string> get(std::string_view name, uint64_t max_bytes) = 0;
  // Fills `out` with the bytes from `offset`; Corruption when the object ends before.
  virtual Status read(std::string_view name, uint64_t offset, std::span<uint8_t> out) = 0;
  // The whole object into `sink`, in parallel where that is faster; Corruption when its size is not
  // `size_bytes`.
  virtual Status download(std::string_view name, uint64_t size_bytes, Sink* sink) = 0;

  // Up to `limit` (at most kMaxListed) objects whose name begins with `prefix` and sorts after
  // `start_after`, in byte order of names. Fewer only when there are no more.
  virtual Result<std::vector<ObjectInfo>> list(std::string_view prefix,
                                               std::string_view start_after, size_t limit) = 0;
  // Ok when it is not there.
  virtual Status remove(std::string_view name) = 0;

  // Seconds since 1970 by the clock that sets `modified`; nothing stays behind. Unsupported: the
  // store cannot be asked.
  virtual Result<int64_t> clock() { return Status(Code::kUnsupported, url() + ": has no clock"); }

  // A local folder that holds the objects as files of the same names, or empty: lets readers map
  // them and watch for new ones.
  virtual std::string local_folder() const { return {}; }
};

// All names with a prefix, page by page, until `visit` returns false.
Status list_all(Store& store, std::string_view prefix, std::string_view start_after,
                const std::function<bool(const ObjectInfo&)>& visit);

struct StoreOptions {
  // S3 only.
  std::string endpoint;  // "https://host:port"; empty: AWS
  std::string region;    // empty: AWS_REGION, AWS_DEFAULT_REGION, then "us-east-1"
  // Of ~/.aws, for two stores with different keys; empty: what AWS's tools would use.
  std::string profile;
  bool virtual_host = false;  // bucket.host/key instead of host/bucket/key
  // S3 and https://.
  std::string ca_file;  // extra trusted certificates, PEM
  unsigned connections = 16;
  uint64_t multipart_bytes = uint64_t{16} << 20;  // pieces of up- and downloads
  double call_timeout_seconds = 60;               // of one attempt; again for each 64 MiB moved
  // http:// and https://.
  std::string token_file;   // its first line is the bearer token
  std::string token;        // the same itself; not both
  std::string client_cert;  // for https://: certificate and private key, PEM
  // All stores.
  unsigned retries = 6;  // on Unavailable, with capped exponential back-off and jitter; 0: none
  uint64_t max_bytes_per_second = 0;  // 0: no limit
  // Put around the store itself, inside retries and limits; null: nothing.
  std::function<Result<std::shared_ptr<Store>>(std::shared_ptr<Store>)> wrap;
};

// "s3://bucket/prefix" (Unsupported in a build without S3), "http://host:port" of a server of a
// chain (or several, with commas), "file:///path", "memory:NAME" (shared inside the process), or a
// path. A folder that does not exist is created when something is put.
Result<std::shared_ptr<Store>> open_store(const std::string& url, const StoreOptions& options);
// False: open_store() takes it for the path of a folder.
bool is_store_url(std::string_view place);

}  // namespace deltawire
