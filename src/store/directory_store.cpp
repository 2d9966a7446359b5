#include "store/directory_store.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/file.h"
#include "base/sync_point.h"
#include "store/directory_walk.h"
#include "store/temporary_file.h"

namespace deltawire {
namespace {

constexpr size_t kWritePieceBytes = size_t{1} << 20;
constexpr size_t kMaxRemembered = 1024;
constexpr int kCreateAttempts = 16;

// Without a trailing slash, so that it equals the parent path of its entries.
std::filesystem::path folder_path(const std::filesystem::path& path) {
  std::string text = path.lexically_normal().string();
  while (text.size() > 1 && text.back() == '/') text.pop_back();
  return text.empty() ? "." : text;
}

// A folder that was removed meanwhile needs no sync.
Status sync_if_there(const std::filesystem::path& folder) {
  Status status = sync_directory(folder);
  return status.code() == Code::kNotFound ? Status() : status;
}

}  // namespace

// An open object. A later put under its name does not affect it.
class DirectoryStore::File {
 public:
  explicit File(const std::filesystem::path& path) : path_(path), fd_(open(path)), error_(errno) {}
  Result<struct stat> stat() const {
    struct stat info;
    if (fd_.get() < 0) {
      errno = error_;
      return errno_status(path_, "cannot open");
    }
    if (::fstat(fd_.get(), &info) != 0) return errno_status(path_, "cannot stat");
    if (!S_ISREG(info.st_mode)) return not_found(path_.string() + ": not a file");
    return info;
  }
  Status read(uint64_t offset, std::span<uint8_t> out) const {
    const ssize_t n = read_at(fd_.get(), offset, out);
    if (n < 0) return errno_status(path_, "cannot read");
    if (size_t(n) == out.size()) return {};
    return corruption(path_.string() + ": ends at byte " + std::to_string(offset + uint64_t(n)) +
                      ", expected " + std::to_string(offset + out.size()));
  }

 private:
  static int open(const std::filesystem::path& path) {
    // O_NONBLOCK: a FIFO under this name must be refused, not waited for.
    constexpr int kFlags = O_RDONLY | O_CLOEXEC | O_NONBLOCK;
    const int fd = ::open(path.c_str(), kFlags);
    if (fd >= 0 || errno != ENOENT) return fd;
    // NFS caches for a while that a name did not exist. Opening its folder refreshes that.
    const Descriptor folder(::open(path.parent_path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (folder.get() < 0) return errno = ENOENT, -1;
    return ::open(path.c_str(), kFlags);
  }

  const std::filesystem::path path_;
  const Descriptor fd_;
  const int error_;  // why open() failed
};

DirectoryStore::DirectoryStore(const std::filesystem::path& root) : root_(folder_path(root)) {}

// NotFound when a parent was removed meanwhile.
Status DirectoryStore::make_folders(const std::filesystem::path& folder) {
  {
    const std::lock_guard lock(mutex_);
    if (synced_folders_.contains(folder.native())) return {};
  }
  const std::filesystem::path parent = folder.has_parent_path() ? folder.parent_path() : ".";
  struct stat info;
  bool sync = folder.native().size() > root_.native().size();
  if (::stat(folder.c_str(), &info) == 0) {
    if (!S_ISDIR(info.st_mode)) {
      return io_error(folder.string() + ": is a file; expected a folder");
    }
  } else {
    if (errno != ENOENT && errno != ENOTDIR) return errno_status(folder, "cannot make folder");
    if (parent != folder) DW_RETURN_IF_ERROR(make_folders(parent));
    if (::mkdir(folder.c_str(), 0777) != 0 && errno != EEXIST) {
      return errno_status(folder, "cannot make folder");
    }
    DW_SYNC_POINT("store: folder made");
    sync = true;
  }
  // A folder that another process made is durable only after its parent was synced, so every
  // folder's parent in the store is synced once.
  if (sync) DW_RETURN_IF_ERROR(sync_directory(parent));
  const std::lock_guard lock(mutex_);
  if (synced_folders_.size() >= kMaxRemembered) synced_folders_.clear();
  synced_folders_.insert(folder.native());
  return {};
}

void DirectoryStore::forget_folders() {
  const std::lock_guard lock(mutex_);
  synced_folders_.clear();
}

// Another process may remove the empty folder before the file is created in it. Then both are
// created again. Once the file exists the folder stays.
Status DirectoryStore::create(TemporaryFile* file, const std::filesystem::path& folder) {
  Status status;
  for (int attempt = 0; attempt < kCreateAttempts; ++attempt) {
    status = make_folders(folder);
    if (status.ok()) status = file->create();
    if (status.code() != Code::kNotFound) return status;
    forget_folders();
  }
  return unavailable(status.message());
}

// Removes empty folders upwards; a writer that needs one recreates it. Returns the first that
// remains.
std::filesystem::path DirectoryStore::remove_empty(std::filesystem::path folder) {
  const std::filesystem::path first = folder;
  while (folder != root_ && ::rmdir(folder.c_str()) == 0) folder = folder.parent_path();
  if (folder != first) forget_folders();
  return folder;
}

Status DirectoryStore::write(std::string_view name, const Body& body, TakeName take_name) {
  DW_RETURN_IF_ERROR(check_object_name(name));
  const std::filesystem::path path = root_ / name;
  Status status = write_file(path, body, take_name);
  if (!status.ok()) remove_empty(path.parent_path());
  return status;
}

Status DirectoryStore::write_file(const std::filesystem::path& path, const Body& body,
                                  TakeName take_name) {
  const std::filesystem::path folder = path.parent_path();
  TemporaryFile file(path);
  DW_SYNC_POINT("store: put");
  DW_RETURN_IF_ERROR(create(&file, folder));
  DW_SYNC_POINT("store: put, temporary file made");
  DW_RETURN_IF_ERROR(file.fill(body));
  DW_SYNC_POINT("store: put, file synced");
  DW_RETURN_IF_ERROR((file.*take_name)());
  DW_SYNC_POINT("store: put, name taken");
  DW_RETURN_IF_ERROR(sync_if_there(folder));
  DW_SYNC_POINT("store: put, folder synced");
  return {};
}

Status DirectoryStore::put(std::string_view name, const Body& body) {
  return write(name, body, &TemporaryFile::rename);
}

Status DirectoryStore::put_if_absent(std::string_view name, const Body& body) {
  return write(name, body, &TemporaryFile::link);
}

// Called when nothing was found: Io if the store's path is not a folder.
Status DirectoryStore::check_root() const {
  struct stat info;
  if (::stat(root_.c_str(), &info) != 0 || S_ISDIR(info.st_mode)) return {};
  return io_error(root_.string() + ": is a file; expected a folder");
}

Result<struct stat> DirectoryStore::check(const File& file) const {
  Result<struct stat> info = file.stat();
  if (!info.ok()) DW_RETURN_IF_ERROR(check_root());
  return info;
}

Result<ObjectInfo> DirectoryStore::stat(std::string_view name) {
  DW_RETURN_IF_ERROR(check_object_name(name));
  DW_ASSIGN_OR_RETURN(const struct stat info, check(File(root_ / name)));
  return ObjectInfo{std::string(name), uint64_t(info.st_size), int64_t(info.st_mtime)};
}

Result<std::string> DirectoryStore::get(std::string_view name, uint64_t max_bytes) {
  DW_RETURN_IF_ERROR(check_object_name(name));
  const File file(root_ / name);
  DW_ASSIGN_OR_RETURN(const struct stat info, check(file));
  if (uint64_t(info.st_size) > max_bytes) {
    return corruption((root_ / name).string() + ": " + std::to_string(info.st_size) +
                      " bytes is over the limit of " + std::to_string(max_bytes));
  }
  std::string text(size_t(info.st_size), '\0');
  DW_RETURN_IF_ERROR(file.read(0, {reinterpret_cast<uint8_t*>(text.data()), text.size()}));
  return text;
}

Status DirectoryStore::read(std::string_view name, uint64_t offset, std::span<uint8_t> out) {
  DW_RETURN_IF_ERROR(check_object_name(name));
  const File file(root_ / name);
  DW_ASSIGN_OR_RETURN(const struct stat info, check(file));
  if (offset > uint64_t(info.st_size)) {  // even when nothing is asked for
    return corruption((root_ / name).string() + ": ends at byte " + std::to_string(info.st_size) +
                      ", expected " + std::to_string(offset + out.size()));
  }
  return file.read(offset, out);
}

Status DirectoryStore::download(std::string_view name, uint64_t size_bytes, Sink* sink) {
  DW_RETURN_IF_ERROR(check_object_name(name));
  const File file(root_ / name);
  DW_ASSIGN_OR_RETURN(const struct stat info, check(file));
  if (uint64_t(info.st_size) != size_bytes) {
    return corruption((root_ / name).string() + ": expected " + std::to_string(size_bytes) +
                      " bytes, got " + std::to_string(info.st_size));
  }
  std::vector<uint8_t> piece;
  for (uint64_t at = 0; at < size_bytes; at += piece.size()) {
    piece.resize(size_t(std::min<uint64_t>(kWritePieceBytes, size_bytes - at)));
    DW_RETURN_IF_ERROR(file.read(at, piece));
    DW_RETURN_IF_ERROR(sink->write(at, piece));
  }
  return {};
}

Result<std::vector<ObjectInfo>> DirectoryStore::list(std::string_view prefix,
                                                     std::string_view start_after, size_t limit) {
  DW_RETURN_IF_ERROR(check_object_prefix(prefix));
  limit = std::min(limit, kMaxListed);
  std::vector<ObjectInfo> found;
  if (limit == 0) return found;
  // Begins at the deepest folder that the prefix names.
  const std::string folder(prefix.substr(0, prefix.rfind('/') + 1));
  const auto visit = [&](const std::string& name) -> Result<bool> {
    Result<ObjectInfo> info = stat(name);
    if (info.ok()) {
      found.push_back(std::move(*info));
    } else if (info.status().code() != Code::kNotFound) {  // not removed meanwhile
      return std::move(info).status();
    }
    return found.size() < limit;
  };
  DW_RETURN_IF_ERROR(
      DirectoryWalk(prefix, start_after, visit).folder(root_ / folder, folder).status());
  if (found.empty()) DW_RETURN_IF_ERROR(check_root());
  return found;
}

Status DirectoryStore::remove(std::string_view name) {
  DW_RETURN_IF_ERROR(check_object_name(name));
  const std::filesystem::path path = root_ / name;
  if (::unlink(path.c_str()) != 0) {
    // A folder of this name is not an object.
    const bool absent = errno == ENOENT || errno == ENOTDIR || errno == EISDIR;
    return absent ? Status() : errno_status(path, "cannot remove");
  }
  DW_SYNC_POINT("store: removed");
  // Synced, so that removals survive a crash in their order.
  return sync_if_there(remove_empty(path.parent_path()));
}

// A network filesystem's server has its own clock, which the times of new files show.
Result<int64_t> DirectoryStore::clock() {
  TemporaryFile file(root_ / "clock");
  DW_RETURN_IF_ERROR(file.create());
  return file.created();
}

}  // namespace deltawire
