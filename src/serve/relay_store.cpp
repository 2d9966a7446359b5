#include "serve/relay_store.h"

#include <fcntl.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <system_error>
#include <thread>
#include <utility>

#include "base/byte_ranges.h"
#include "base/file.h"
#include "base/folder.h"
#include "base/guard.h"
#include "base/log.h"
#include "chain/names.h"

namespace deltawire {
namespace {

constexpr unsigned kFetches = 4;
constexpr size_t kMaxObjects = 10'000;  // each kept one is an open file
constexpr uint64_t kPieceBytes = uint64_t{1} << 20;

// Half of the files that this process may have open.
size_t most_objects() {
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) != 0) return kMaxObjects / 20;
  return std::min<size_t>(kMaxObjects, files.rlim_cur / 2);
}

// A nameless file, deleted when its descriptor is closed.
Result<int> open_nameless(const std::filesystem::path& folder) {
  DW_RETURN_IF_ERROR(make_folder(folder));
  int fd = ::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (fd < 0 && (errno == EOPNOTSUPP || errno == EISDIR)) {
    std::string path = (folder / ".relay-XXXXXX").string();
    fd = ::mkostemp(path.data(), O_CLOEXEC);
    if (fd >= 0) ::unlink(path.c_str());
  }
  return fd < 0 ? Result<int>(system_error(folder, "cannot make a file")) : fd;
}

}  // namespace

// One object, while and after it is fetched. Thread-safe.
class RelayStore::Object final : public Sink {
 public:
  Object(ObjectInfo info, const RelayOptions& options, const std::atomic<bool>& ending)
      : info(std::move(info)), folder_(options.folder), ending_(ending) {}
  ~Object() override {
    if (fd_ >= 0) ::close(fd_);
  }

  const ObjectInfo info;
  uint64_t last_read = 0;  // the relay's
  bool is_kept = false;    // the relay's: it has, or gets, a file
  std::atomic<bool> is_downloaded = false;

  // True for the first caller, which must fetch the object.
  bool begin() {
    const std::lock_guard lock(mutex_);
    return !std::exchange(begun_, true);
  }
  Status open() {
    if (ending_) return cancelled("the relay ends");
    disk_failed_ = true;
    DW_ASSIGN_OR_RETURN(fd_, open_nameless(folder_));
    DW_RETURN_IF_ERROR(take_space(fd_, 0, info.size_bytes, folder_));
    disk_failed_ = false;
    return {};
  }
  // Takes a piece that arrived; a retry may bring it again.
  Status write(uint64_t offset, std::span<const uint8_t> bytes) override {
    if (ending_) return cancelled("the relay ends");
    if (const Status written = write_all(fd_, offset, bytes, folder_); !written.ok()) {
      disk_failed_ = true;
      return written;
    }
    const std::lock_guard lock(mutex_);
    arrived_.add(offset, offset + bytes.size());
    changed_.notify_all();
    return {};
  }
  void end(Status status) {
    const std::lock_guard lock(mutex_);
    ended_ = true;
    status_ = std::move(status);
    changed_.notify_all();
  }
  // Waits for the bytes. `by_disk`: the local disk failed.
  Status read(uint64_t offset, std::span<uint8_t> out, bool* by_disk) {
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return ended_ || arrived_.contains(offset, offset + out.size()); });
      if (!arrived_.contains(offset, offset + out.size())) {
        *by_disk = disk_failed_;
        return status_.ok() ? unavailable("the object ended early") : status_;
      }
    }
    const ssize_t n = read_at(fd_, offset, out);
    *by_disk = n < 0 || size_t(n) < out.size();
    return *by_disk ? system_error(folder_, "cannot read", n < 0 ? errno : EIO) : Status();
  }

 private:
  const std::filesystem::path folder_;
  const std::atomic<bool>& ending_;
  int fd_ = -1;
  std::atomic<bool> disk_failed_ = false;
  std::mutex mutex_;
  std::condition_variable changed_;
  ByteRanges arrived_;
  bool begun_ = false, ended_ = false;
  Status status_;
};

RelayStore::RelayStore(std::shared_ptr<Store> upstream, RelayOptions options)
    : ForwardingStore(std::move(upstream)),
      options_(std::move(options)),
      max_objects_(most_objects()),
      slots_(kFetches) {}

RelayStore::~RelayStore() {
  ending_ = true;
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return num_fetching_ == 0; });
}

Result<std::shared_ptr<RelayStore::Object>> RelayStore::find(std::string_view name) {
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = objects_.find(name); found != objects_.end()) {
      found->second->last_read = ++num_reads_;
      return found->second;
    }
  }
  DW_ASSIGN_OR_RETURN(ObjectInfo info, inner().stat(name));
  auto object = std::make_shared<Object>(std::move(info), options_, ending_);
  const std::lock_guard lock(mutex_);
  object->last_read = ++num_reads_;
  return objects_.emplace(std::string(name), std::move(object)).first->second;
}

// Makes room for one that is to be fetched.
void RelayStore::keep(const std::shared_ptr<Object>& object) {
  const std::lock_guard lock(mutex_);
  const auto found = objects_.find(object->info.name);
  if (found == objects_.end() || found->second != object) return;  // dropped meanwhile
  object->is_kept = true;
  kept_bytes_ += object->info.size_bytes;
  while (kept_bytes_ > options_.max_bytes || objects_.size() > max_objects_) {
    auto oldest = objects_.end();
    for (auto at = objects_.begin(); at != objects_.end(); ++at) {
      if (at->second == object) continue;
      if (kept_bytes_ > options_.max_bytes && !at->second->is_kept) continue;
      if (oldest == objects_.end() || at->second->last_read < oldest->second->last_read) {
        oldest = at;
      }
    }
    if (oldest == objects_.end()) return;
    if (oldest->second->is_kept) kept_bytes_ -= oldest->second->info.size_bytes;
    objects_.erase(oldest);
  }
}

void RelayStore::forget(std::string_view name, const Object* object) {
  const std::lock_guard lock(mutex_);
  const auto found = objects_.find(name);
  if (found == objects_.end() || (object != nullptr && found->second.get() != object)) return;
  if (found->second->is_kept) kept_bytes_ -= found->second->info.size_bytes;
  objects_.erase(found);
}

void RelayStore::fetch(const std::shared_ptr<Object>& object) {
  const auto work = [this, object] {
    Status status;
    {
      const Slots::Slot slot(&slots_);
      status = guard_memory("relaying", [&]() -> Status {
        DW_RETURN_IF_ERROR(object->open());
        return inner().download(object->info.name, object->info.size_bytes, object.get());
      });
    }
    if (!status.ok() && !ending_) {
      log_event(LogLevel::kWarning, "relay.failed",
                {{"object", object->info.name}, {"error", status}});
      forget(object->info.name, object.get());  // the next reader tries again
    }
    object->end(std::move(status));
    const std::lock_guard lock(mutex_);
    --num_fetching_;
    changed_.notify_all();
  };
  keep(object);
  {
    const std::lock_guard lock(mutex_);
    ++num_fetching_;
  }
  try {
    std::thread(work).detach();
  } catch (const std::system_error&) {  // no thread available
    work();
  }
}

Result<ObjectInfo> RelayStore::stat(std::string_view name) {
  if (!is_immutable_object(name)) return inner().stat(name);
  DW_ASSIGN_OR_RETURN(const std::shared_ptr<Object> object, find(name));
  return object->info;
}

Result<std::string> RelayStore::get(std::string_view name, uint64_t max_bytes) {
  if (!is_immutable_object(name)) return inner().get(name, max_bytes);
  DW_ASSIGN_OR_RETURN(const std::shared_ptr<Object> object, find(name));
  if (object->info.size_bytes > max_bytes) return inner().get(name, max_bytes);  // which refuses
  std::string text(size_t(object->info.size_bytes), '\0');
  DW_RETURN_IF_ERROR(read(object, 0, {reinterpret_cast<uint8_t*>(text.data()), text.size()}));
  return text;
}

Status RelayStore::read(std::string_view name, uint64_t offset, std::span<uint8_t> out) {
  if (!is_immutable_object(name)) return inner().read(name, offset, out);
  DW_ASSIGN_OR_RETURN(const std::shared_ptr<Object> object, find(name));
  return read(object, offset, out);
}

Status RelayStore::read(const std::shared_ptr<Object>& object, uint64_t offset,
                        std::span<uint8_t> out) {
  const uint64_t size = object->info.size_bytes;
  const bool is_outside = offset > size || out.size() > size - offset;
  bool is_direct = is_outside || out.empty() || size > options_.max_bytes;
  if (!is_direct) {
    if (object->begin()) fetch(object);
    const Status status = object->read(offset, out, &is_direct);
    if (!is_direct) return status;
  }
  return inner().read(object->info.name, offset, out);
}

Status RelayStore::download(std::string_view name, uint64_t size_bytes, Sink* sink) {
  if (!is_immutable_object(name)) return inner().download(name, size_bytes, sink);
  DW_ASSIGN_OR_RETURN(std::shared_ptr<Object> object, find(name));
  if (object->is_downloaded.exchange(true)) {
    forget(name, object.get());
    DW_ASSIGN_OR_RETURN(object, find(name));
    object->is_downloaded = true;
  }
  if (object->info.size_bytes != size_bytes || size_bytes > options_.max_bytes) {
    return inner().download(name, size_bytes, sink);
  }
  std::vector<uint8_t> piece;
  for (uint64_t at = 0; at < size_bytes; at += piece.size()) {
    piece.resize(size_t(std::min(kPieceBytes, size_bytes - at)));
    DW_RETURN_IF_ERROR(read(object, at, piece));
    DW_RETURN_IF_ERROR(sink->write(at, piece));
  }
  return {};
}

Status RelayStore::put(std::string_view name, const Body& body) {
  forget(name);
  return inner().put(name, body);
}

Status RelayStore::remove(std::string_view name) {
  forget(name);
  return inner().remove(name);
}

std::shared_ptr<Store> make_relay(std::shared_ptr<Store> store, RelayOptions options) {
  if (!store->local_folder().empty()) return store;
  return std::make_shared<RelayStore>(std::move(store), std::move(options));
}

}  // namespace deltawire
