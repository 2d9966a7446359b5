#include "store/temporary_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "base/file.h"
#include "base/sync_point.h"
#include "base/text.h"

namespace deltawire {
namespace {

constexpr size_t kFillPieceBytes = size_t{1} << 20;
constexpr std::string_view kMark = ".deltawire-";  // stored on disk; marks files that gc may remove

std::string random_name() { return std::string(kMark) + random_hex(32); }

}  // namespace

Status errno_status(const std::filesystem::path& path, const std::string& what) {
  const int error = errno;
  const std::string message = path.string() + ": " + what + ": " + std::strerror(error);
  if (error == ENOENT || error == ENOTDIR) return not_found(message);
  if (error == ESTALE || error == ETIMEDOUT || error == EAGAIN) return unavailable(message);
  return io_error(message);
}

TemporaryFile::TemporaryFile(std::filesystem::path object)
    : object_(std::move(object)), path_(object_.parent_path() / random_name()) {}

TemporaryFile::~TemporaryFile() {
  if (fd_ >= 0) ::close(fd_);
  if (inode_ != 0) ::unlink(path_.c_str());
}

Status TemporaryFile::create() {
  fd_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  struct stat info;
  if (fd_ < 0 || ::fstat(fd_, &info) != 0) return errno_status(object_, "cannot create");
  device_ = info.st_dev;
  inode_ = info.st_ino;
  created_ = int64_t(info.st_mtime);
  return {};
}

Status TemporaryFile::fill(const Body& body) {
  std::vector<uint8_t> piece;
  for (uint64_t at = 0; at < body.size(); at += piece.size()) {
    piece.resize(size_t(std::min<uint64_t>(kFillPieceBytes, body.size() - at)));
    DW_RETURN_IF_ERROR(body.read(at, piece));
    if (!write_at(fd_, at, piece)) return errno_status(object_, "cannot write");
    DW_SYNC_POINT("store: piece written");
  }
  if (::fsync(fd_) != 0) return errno_status(object_, "cannot sync");
  if (::close(std::exchange(fd_, -1)) != 0) return errno_status(object_, "cannot close");
  return {};
}

// Opens the file instead of calling stat(), so that NFS asks the server and not its cache.
bool TemporaryFile::has_the_name() const {
  const Descriptor fd(::open(object_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat info;
  return fd.get() >= 0 && ::fstat(fd.get(), &info) == 0 && info.st_dev == device_ &&
         info.st_ino == inode_;
}

// If the temporary file is missing, gc removed it as stale; the put may be retried.
Status TemporaryFile::name_failure(int error, const std::string& what) const {
  errno = error;
  Status status = errno_status(object_, what);
  return status.code() == Code::kNotFound ? unavailable(status.message()) : status;
}

// NFS may lose the answer to a successful request and repeat it, and then report that the name is
// taken or the file missing. So the result is decided by which file has the name.
Status TemporaryFile::link() {
  if (::link(path_.c_str(), object_.c_str()) == 0) return {};
  const int error = errno;
  if (has_the_name()) return {};
  if (error == EEXIST) return conflict(object_.string() + ": is already there");
  if (error == EPERM || error == EOPNOTSUPP || error == ENOSYS) return rename_if_absent();
  return name_failure(error, "cannot link");
}

// For filesystems without hard links (exFAT, some over FUSE).
Status TemporaryFile::rename_if_absent() {
  if (::renameat2(AT_FDCWD, path_.c_str(), AT_FDCWD, object_.c_str(), RENAME_NOREPLACE) != 0) {
    if (errno == EEXIST) return conflict(object_.string() + ": is already there");
    if (errno != EINVAL && errno != ENOSYS) return name_failure(errno, "cannot rename");
    return unsupported(object_.string() +
                       ": this filesystem supports neither hard links nor exclusive renames, so "
                       "racing writers could overwrite each other");
  }
  inode_ = 0;
  return {};
}

Status TemporaryFile::rename() {
  if (::rename(path_.c_str(), object_.c_str()) != 0) {
    const int error = errno;
    if (!has_the_name()) return name_failure(error, "cannot rename");
  }
  inode_ = 0;  // nothing left to remove
  return {};
}

Result<uint64_t> remove_left_temporaries(const std::filesystem::path& folder, int64_t before,
                                         bool count_only) {
  uint64_t removed = 0;
  std::error_code error;
  std::filesystem::recursive_directory_iterator at(
      folder, std::filesystem::directory_options::skip_permission_denied, error);
  if (error == std::errc::no_such_file_or_directory) return removed;
  for (; !error && at != std::filesystem::recursive_directory_iterator(); at.increment(error)) {
    const std::string& path = at->path().native();
    struct stat info;
    if (!at->path().filename().native().starts_with(kMark) || ::lstat(path.c_str(), &info) != 0 ||
        !S_ISREG(info.st_mode) || info.st_mtime > before) {
      continue;
    }
    if (count_only || ::unlink(path.c_str()) == 0) {
      ++removed;
    } else if (errno != ENOENT) {
      return errno_status(path, "cannot remove");
    }
  }
  // A folder that another process removed during the walk is not an error.
  if (error && error != std::errc::no_such_file_or_directory) {
    return io_error(folder.string() + ": cannot list: " + error.message());
  }
  return removed;
}

}  // namespace deltawire
