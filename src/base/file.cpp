#include "base/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>

#include "base/clock.h"
#include "base/folder.h"
#include "base/text.h"

namespace deltawire {

bool write_at(int fd, uint64_t offset, Bytes bytes) {
  for (size_t done = 0; done < bytes.size();) {
    const ssize_t n = ::pwrite(fd, bytes.data() + done, bytes.size() - done, off_t(offset + done));
    if (n < 0 && errno == EINTR) continue;
    if (n == 0) errno = EIO;
    if (n <= 0) return false;
    done += size_t(n);
  }
  return true;
}

Status write_all(int fd, uint64_t offset, Bytes bytes, const std::filesystem::path& path) {
  return write_at(fd, offset, bytes) ? Status() : system_error(path, "cannot write");
}

ssize_t read_at(int fd, uint64_t offset, MutableBytes out) {
  size_t done = 0;
  while (done < out.size()) {
    const ssize_t n = ::pread(fd, out.data() + done, out.size() - done, off_t(offset + done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return -1;
    if (n == 0) break;
    done += size_t(n);
  }
  return ssize_t(done);
}

Status take_space(int fd, uint64_t offset, uint64_t size, const std::filesystem::path& path) {
  if (size == 0) return {};
  int error;
  while ((error = ::posix_fallocate(fd, off_t(offset), off_t(size))) == EINTR) {
  }
  if (error == 0) return {};
  return system_error(path, "cannot reserve " + std::to_string(size) + " bytes of disk space",
                      error);
}

namespace {

// Bytes written or synced between two polls: a fraction of a second on a slow disk.
constexpr uint64_t kPieceBytes = uint64_t{32} << 20;

Status ask(const Poll& poll) { return poll ? poll() : Status(); }

int64_t nanoseconds(const timespec& time) {
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

FileIdentity identity_of(const struct stat& info) {
  return {uint64_t(info.st_dev),   uint64_t(info.st_ino),     uint64_t(info.st_size),
          uint64_t(info.st_nlink), nanoseconds(info.st_mtim), nanoseconds(info.st_ctim)};
}

// "12 bytes, 2026-01-31T12:00:00.123456789Z"
std::string text_of(const FileIdentity& file) {
  char fraction[16];
  std::snprintf(fraction, sizeof fraction, ".%09dZ", int(file.modified_ns % 1'000'000'000));
  return std::to_string(file.size_bytes) + " bytes, " +
         utc_text(file.modified_ns / 1'000'000'000, "%FT%T") + fraction;
}

}  // namespace

Result<std::shared_ptr<MappedFile>> MappedFile::open(const std::filesystem::path& path) {
  return open(path, false);
}

Result<std::shared_ptr<MappedFile>> MappedFile::open_large(const std::filesystem::path& path) {
  return open(path, true);
}

Result<std::shared_ptr<MappedFile>> MappedFile::open(const std::filesystem::path& path,
                                                     bool large) {
  // O_NONBLOCK: a FIFO under this name must be refused below, not waited for.
  Descriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (fd.get() < 0) return system_error(path, "cannot open");
  struct stat info;
  if (::fstat(fd.get(), &info) != 0) return system_error(path, "cannot stat");
  if (!S_ISREG(info.st_mode)) return invalid_argument(path.string() + ": not a regular file");
  std::shared_ptr<MappedFile> file(new MappedFile);
  file->path_ = path;
  file->opened_ = identity_of(info);
  file->size_ = size_t(info.st_size);
  if (file->size_ == 0) return file;
  file->mapping_ = Mapping(fd.get(), file->size_, Mapping::Access::kRead);
  if (file->mapping_.data() == nullptr) return system_error(path, "cannot map");
  ::madvise(file->mapping_.data(), file->size_, MADV_SEQUENTIAL);
  if (large) file->mapping_.read_by_descriptor(fd.get());
  return file;
}

Status MappedFile::check_whole() const {
  if (!mapping_.broken()) return {};
  return io_error(path_.string() + ": changed while it was read: some of its " +
                  std::to_string(size_) + " bytes are missing or unreadable");
}

// Opened, not only looked at: NFS then asks the server instead of its cache.
Status MappedFile::check_unchanged() const {
  DW_RETURN_IF_ERROR(check_whole());
  const Descriptor fd(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat info;
  // Removed or replaced: what is mapped stays as it was.
  if (fd.get() < 0 || ::fstat(fd.get(), &info) != 0) return {};
  const FileIdentity now = identity_of(info);
  if (now.device != opened_.device || now.inode != opened_.inode) return {};
  const char* what = nullptr;
  if (now.size_bytes != opened_.size_bytes) {
    what = "its size";
  } else if (now.modified_ns != opened_.modified_ns) {
    what = "the time of its last change";
  } else if (now.changed_ns != opened_.changed_ns && now.links == opened_.links) {
    what = "the time of its status";  // a link to it changes that too
  }
  if (what == nullptr) return {};
  return io_error(path_.string() + ": changed while it was read: " + what + " has changed (" +
                  text_of(opened_) + " before, " + text_of(now) + " now)");
}

Result<AtomicFile> AtomicFile::create(const std::filesystem::path& path,
                                      const std::filesystem::path& shown) {
  AtomicFile file;
  file.path_ = path;
  file.shown_ = shown.empty() ? path : shown;
  file.temporary_ = temporary_path(path);
  file.fd_ = ::open(file.temporary_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (file.fd_ < 0) return system_error(file.shown_, "cannot create");
  return file;
}

AtomicFile::AtomicFile(AtomicFile&& other) noexcept
    : path_(std::move(other.path_)),
      shown_(std::move(other.shown_)),
      temporary_(std::move(other.temporary_)),
      fd_(std::exchange(other.fd_, -1)),
      end_(other.end_) {}

AtomicFile::~AtomicFile() {
  if (fd_ < 0) return;
  ::close(fd_);
  ::unlink(temporary_.c_str());
}

Status AtomicFile::write(Bytes bytes, const Poll& poll) {
  while (!bytes.empty()) {
    const Bytes piece = bytes.first(std::min<uint64_t>(bytes.size(), kPieceBytes));
    DW_RETURN_IF_ERROR(write_at(end_, piece));
    DW_RETURN_IF_ERROR(ask(poll));
    bytes = bytes.subspan(piece.size());
  }
  return {};
}

Status AtomicFile::write_at(uint64_t offset, Bytes bytes) {
  DW_RETURN_IF_ERROR(write_all(fd_, offset, bytes, shown_));
  end_ = std::max(end_, offset + bytes.size());
  return {};
}

Status AtomicFile::allocate(uint64_t size) {
  if (size == 0) return {};
  // A full disk must show here: through a mapping it would be a fatal signal.
  DW_RETURN_IF_ERROR(take_space(fd_, 0, size, shown_));
  end_ = size;
  return {};
}

Status AtomicFile::set_permissions(std::filesystem::perms bits) {
  if (::fchmod(fd_, mode_t(bits)) != 0) return system_error(shown_, "cannot set permissions");
  return {};
}

// Syncs the pages piece by piece, so that a cancellation is noticed, then the whole file.
Status AtomicFile::sync(const Poll& poll) {
  DW_RETURN_IF_ERROR(ask(poll));
  for (uint64_t at = 0; poll && at < end_; at += kPieceBytes) {
    const unsigned flags =
        SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER;
    if (::sync_file_range(fd_, off_t(at), off_t(kPieceBytes), flags) != 0) {
      // If the filesystem lacks this call, the fsync below does everything. The kernel reports a
      // failed write only once, possibly here.
      const bool missing = errno == ENOSYS || errno == EINVAL || errno == ESPIPE ||
                           errno == EOPNOTSUPP || errno == EPERM;
      if (!missing) return system_error(shown_, "cannot sync");
      break;
    }
    DW_RETURN_IF_ERROR(ask(poll));
  }
  if (::fsync(fd_) != 0) return system_error(shown_, "cannot sync");
  return ask(poll);
}

Status AtomicFile::commit(const Poll& poll) {
  DW_RETURN_IF_ERROR(sync(poll));
  const int fd = std::exchange(fd_, -1);
  if (::close(fd) != 0 || ::rename(temporary_.c_str(), path_.c_str()) != 0) {
    Status status = system_error(shown_, "cannot commit");
    ::unlink(temporary_.c_str());
    return status;
  }
  return sync_directory(folder_of(path_));
}

Result<MutableFile> MutableFile::create(const std::filesystem::path& path, uint64_t size,
                                        const std::filesystem::path& shown) {
  DW_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::create(path, shown));
  DW_RETURN_IF_ERROR(file.allocate(size));
  Mapping mapping;
  if (size != 0) {
    mapping = Mapping(file.fd_, size, Mapping::Access::kReadWrite);
    if (mapping.data() == nullptr) return system_error(file.shown_, "cannot map");
  }
  return MutableFile(std::move(file), std::move(mapping), size);
}

Status MutableFile::commit(const Poll& poll) {
  for (size_t at = 0; at < size_; at += kPieceBytes) {
    DW_RETURN_IF_ERROR(ask(poll));
    if (::msync(mapping_.data() + at, std::min<size_t>(kPieceBytes, size_ - at), MS_SYNC) != 0)
      return system_error(file_.shown_, "cannot sync");
  }
  if (mapping_.broken()) {
    return io_error(file_.shown_.string() +
                    ": cannot write: the disk is full, or the file was cut short");
  }
  return file_.commit(poll);
}

Result<std::string> read_text_file(const std::filesystem::path& path, uint64_t max_bytes) {
  Descriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (fd.get() < 0) return system_error(path, "cannot open");
  struct stat info;
  if (::fstat(fd.get(), &info) != 0) return system_error(path, "cannot stat");
  if (!S_ISREG(info.st_mode)) return invalid_argument(path.string() + ": not a regular file");
  if (uint64_t(info.st_size) > max_bytes) {
    return corruption(path.string() + ": " + std::to_string(info.st_size) +
                      " bytes is over the limit of " + std::to_string(max_bytes));
  }
  std::string text(size_t(info.st_size), '\0');
  const ssize_t n = read_at(fd.get(), 0, {reinterpret_cast<uint8_t*>(text.data()), text.size()});
  if (n < 0) return system_error(path, "cannot read");
  if (size_t(n) == text.size()) return text;
  return io_error(path.string() + ": changed while it was read: " + std::to_string(n) + " of its " +
                  std::to_string(text.size()) + " bytes are left");
}

Status write_text_file(const std::filesystem::path& path, std::string_view text,
                       const std::filesystem::path& shown) {
  DW_ASSIGN_OR_RETURN(auto file, AtomicFile::create(path, shown));
  DW_RETURN_IF_ERROR(file.write(text_bytes(text)));
  return file.commit();
}

Status sync_directory(const std::filesystem::path& path) {
  Descriptor fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (fd.get() < 0) return system_error(path, "cannot open folder");
  // Some network filesystems refuse fsync on folders; the rename itself is then all they offer.
  if (::fsync(fd.get()) != 0 && errno != EINVAL && errno != ENOTSUP) {
    return system_error(path, "cannot sync folder");
  }
  return {};
}

}  // namespace deltawire
