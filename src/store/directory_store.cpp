#include "store/directory_store.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>

#include "base/file.h"
#include "base/sync_point.h"

namespace deltawire {
namespace {

constexpr size_t kPieceBytes = size_t{1} << 20;

Status failed(const std::filesystem::path& path, const std::string& what) {
  const std::string message = path.string() + ": " + what + ": " + std::strerror(errno);
  if (errno == ENOENT || errno == ENOTDIR) return not_found(message);
  // A network filesystem that lost its server for a while.
  if (errno == ESTALE || errno == ETIMEDOUT || errno == EAGAIN) return unavailable(message);
  return io_error(message);
}

// A synced file without its name yet. Leaves nothing behind.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::filesystem::path& object) {
    static std::atomic<unsigned> counter{0};
    char host[64] = "";
    ::gethostname(host, sizeof host - 1);
    path_ = object.parent_path() / ("." + object.filename().string() + "." + host + "." +
                                    std::to_string(::getpid()) + "." + std::to_string(counter++));
  }
  ~TemporaryFile() {
    if (fd_ >= 0) ::close(fd_);
    ::unlink(path_.c_str());
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  Status fill(const Body& body) {
    fd_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd_ < 0) return failed(path_, "cannot create");
    std::vector<uint8_t> piece(size_t(std::min<uint64_t>(kPieceBytes, body.size())));
    for (uint64_t at = 0; at < body.size(); at += piece.size()) {
      piece.resize(size_t(std::min<uint64_t>(kPieceBytes, body.size() - at)));
      DW_RETURN_IF_ERROR(body.read(at, piece));
      for (size_t done = 0; done < piece.size();) {
        const ssize_t n = ::write(fd_, piece.data() + done, piece.size() - done);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return failed(path_, "cannot write");
        done += size_t(n);
      }
      DW_SYNC_POINT("store: piece written");
    }
    if (::fsync(fd_) != 0) return failed(path_, "cannot sync");
    const int fd = std::exchange(fd_, -1);
    if (::close(fd) != 0) return failed(path_, "cannot close");
    return {};
  }

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  int fd_ = -1;
};

Status make_folders(const std::filesystem::path& folder) {
  struct stat info;
  if (::stat(folder.c_str(), &info) == 0) return {};
  DW_RETURN_IF_ERROR(folder.has_parent_path() && folder != folder.root_path()
                         ? make_folders(folder.parent_path())
                         : Status());
  if (::mkdir(folder.c_str(), 0777) != 0 && errno != EEXIST) {
    return failed(folder, "cannot make folder");
  }
  const std::filesystem::path parent = folder.parent_path();
  return sync_directory(parent.empty() ? "." : parent);
}

class File {
 public:
  explicit File(const std::filesystem::path& path)
      : path_(path), fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {}
  ~File() {
    if (fd_ >= 0) ::close(fd_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  Result<struct stat> stat() const {
    struct stat info;
    if (fd_ < 0 || ::fstat(fd_, &info) != 0) return failed(path_, "cannot open");
    if (!S_ISREG(info.st_mode)) return not_found(path_.string() + ": not a file");
    return info;
  }
  Status read(uint64_t offset, std::span<uint8_t> out) const {
    for (size_t done = 0; done < out.size();) {
      const ssize_t n = ::pread(fd_, out.data() + done, out.size() - done, off_t(offset + done));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return failed(path_, "cannot read");
      if (n == 0) {
        return corruption(path_.string() + ": ends at byte " + std::to_string(offset + done) +
                          ", expected " + std::to_string(offset + out.size()));
      }
      done += size_t(n);
    }
    return {};
  }

 private:
  const std::filesystem::path path_;
  const int fd_;
};

// Every object below `folder` (whose name is `name`, "" or ending in '/').
Status walk(const std::filesystem::path& folder, const std::string& name, std::string_view prefix,
            std::string_view start_after, std::vector<std::string>* found) {
  DIR* const dir = ::opendir(folder.c_str());
  if (dir == nullptr) return errno == ENOENT ? Status() : failed(folder, "cannot list");
  Status status;
  for (const dirent* entry; status.ok() && (entry = ::readdir(dir)) != nullptr;) {
    if (entry->d_name[0] == '.') continue;
    const std::string own = name + entry->d_name;
    bool is_folder = entry->d_type == DT_DIR;
    if (entry->d_type == DT_UNKNOWN || entry->d_type == DT_LNK) {
      struct stat info;
      is_folder = ::stat((folder / entry->d_name).c_str(), &info) == 0 && S_ISDIR(info.st_mode);
    }
    if (!is_folder) {
      if (own.starts_with(prefix) && own > start_after) found->push_back(own);
      continue;
    }
    const std::string below = own + "/";
    // Skips what cannot hold the prefix, and what sorts before the start with all it holds.
    const size_t common = std::min(below.size(), prefix.size());
    if (std::string_view(below).substr(0, common) != prefix.substr(0, common)) continue;
    if (below < start_after && !start_after.starts_with(below)) continue;
    status = walk(folder / entry->d_name, below, prefix, start_after, found);
  }
  ::closedir(dir);
  return status;
}

}  // namespace

Status DirectoryStore::put(std::string_view name, const Body& body) {
  DW_RETURN_IF_ERROR(check_object_name(name));
  const std::filesystem::path path = root_ / name;
  DW_RETURN_IF_ERROR(make_folders(path.parent_path()));
  TemporaryFile file(path);
  DW_SYNC_POINT("store: put");
  DW_RETURN_IF_ERROR(file.fill(body));
  DW_SYNC_POINT("store: put, file synced");
  if (::rename(file.path().c_str(), path.c_str()) != 0) return failed(path, "cannot rename");
  DW_SYNC_POINT("store: put, renamed");
  DW_RETURN_IF_ERROR(sync_directory(path.parent_path()));
  DW_SYNC_POINT("store: put, folder synced");
  return {};
}

Status DirectoryStore::put_if_absent(std::string_view name, const Body& body) {
  DW_RETURN_IF_ERROR(check_object_name(name));
  const std::filesystem::path path = root_ / name;
  DW_RETURN_IF_ERROR(make_folders(path.parent_path()));
  TemporaryFile file(path);
  DW_SYNC_POINT("store: put_if_absent");
  DW_RETURN_IF_ERROR(file.fill(body));
  DW_SYNC_POINT("store: put_if_absent, file synced");
  if (::link(file.path().c_str(), path.c_str()) != 0) {
    const int error = errno;
    // NFS may lose the answer to a link that was made: then the file has two names.
    struct stat info;
    const bool made = ::stat(file.path().c_str(), &info) == 0 && info.st_nlink == 2;
    errno = error;
    if (!made && error == EEXIST) return conflict(path.string() + ": is already there");
    if (!made) return failed(path, "cannot link");
  }
  DW_SYNC_POINT("store: put_if_absent, linked");
  DW_RETURN_IF_ERROR(sync_directory(path.parent_path()));
  DW_SYNC_POINT("store: put_if_absent, folder synced");
  return {};
}

Result<ObjectInfo> DirectoryStore::stat(std::string_view name) {
  DW_RETURN_IF_ERROR(check_object_name(name));
  DW_ASSIGN_OR_RETURN(const struct stat info, File(root_ / name).stat());
  return ObjectInfo{std::string(name), uint64_t(info.st_size), int64_t(info.st_mtime)};
}

Status DirectoryStore::read(std::string_view name, uint64_t offset, std::span<uint8_t> out) {
  DW_RETURN_IF_ERROR(check_object_name(name));
  const File file(root_ / name);
  DW_RETURN_IF_ERROR(file.stat().status());
  return file.read(offset, out);
}

Status DirectoryStore::download(std::string_view name, uint64_t size_bytes, Sink* sink) {
  DW_RETURN_IF_ERROR(check_object_name(name));
  const File file(root_ / name);
  DW_ASSIGN_OR_RETURN(const struct stat info, file.stat());
  if (uint64_t(info.st_size) != size_bytes) {
    return corruption((root_ / name).string() + ": expected " + std::to_string(size_bytes) +
                      " bytes, got " + std::to_string(info.st_size));
  }
  std::vector<uint8_t> piece;
  for (uint64_t at = 0; at < size_bytes; at += piece.size()) {
    piece.resize(size_t(std::min<uint64_t>(kPieceBytes, size_bytes - at)));
    DW_RETURN_IF_ERROR(file.read(at, piece));
    DW_RETURN_IF_ERROR(sink->write(at, piece));
  }
  return {};
}

Result<std::vector<ObjectInfo>> DirectoryStore::list(std::string_view prefix,
                                                     std::string_view start_after, size_t limit) {
  // Begins at the deepest folder that the prefix names.
  const size_t slash = prefix.rfind('/');
  const std::string folder(slash == std::string_view::npos ? "" : prefix.substr(0, slash + 1));
  std::vector<std::string> names;
  DW_RETURN_IF_ERROR(walk(root_ / folder, folder, prefix, start_after, &names));
  const size_t count = std::min(limit, names.size());
  std::partial_sort(names.begin(), names.begin() + ptrdiff_t(count), names.end());
  names.resize(count);
  std::vector<ObjectInfo> found;
  for (const std::string& name : names) {
    Result<ObjectInfo> info = stat(name);
    if (info.ok()) found.push_back(std::move(*info));
    if (!info.ok() && info.status().code() != Code::kNotFound) return std::move(info).status();
  }
  return found;
}

Status DirectoryStore::remove(std::string_view name) {
  DW_RETURN_IF_ERROR(check_object_name(name));
  const std::filesystem::path path = root_ / name;
  if (::unlink(path.c_str()) != 0 && errno != ENOENT && errno != ENOTDIR) {
    return failed(path, "cannot remove");
  }
  // Empty folders go too; a writer that needs one makes it again.
  std::filesystem::path folder = path.parent_path();
  while (folder != root_ && ::rmdir(folder.c_str()) == 0) folder = folder.parent_path();
  return {};
}

}  // namespace deltawire
