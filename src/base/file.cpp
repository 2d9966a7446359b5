#include "base/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/descriptor.h"
#include "base/temporary.h"

namespace deltawire {
namespace {

// What is written or synced between two polls: a fraction of a second on a slow disk.
constexpr uint64_t kPieceBytes = uint64_t{32} << 20;

Status ask(const Poll& poll) { return poll ? poll() : Status(); }

}  // namespace

Result<std::shared_ptr<MappedFile>> MappedFile::open(const std::filesystem::path& path) {
  // O_NONBLOCK: a FIFO under this name must be refused below, not waited for.
  Descriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (fd.get() < 0) return system_error(path, "cannot open");
  struct stat info;
  if (::fstat(fd.get(), &info) != 0) return system_error(path, "cannot stat");
  if (!S_ISREG(info.st_mode)) return invalid_argument(path.string() + ": not a regular file");
  std::shared_ptr<MappedFile> file(new MappedFile);
  file->path_ = path;
  file->size_ = size_t(info.st_size);
  if (file->size_ == 0) return file;
  void* data = ::mmap(nullptr, file->size_, PROT_READ, MAP_SHARED, fd.get(), 0);
  if (data == MAP_FAILED) return system_error(path, "cannot map");
  ::madvise(data, file->size_, MADV_SEQUENTIAL);
  file->data_ = static_cast<const uint8_t*>(data);
  return file;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<uint8_t*>(data_), size_);
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
  for (size_t done = 0; done < bytes.size();) {
    const ssize_t n = ::pwrite(fd_, bytes.data() + done, bytes.size() - done, off_t(offset + done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return system_error(shown_, "cannot write");
    if (n == 0) return io_error(shown_.string() + ": cannot write: no progress");
    done += size_t(n);
  }
  end_ = std::max(end_, offset + bytes.size());
  return {};
}

Status AtomicFile::allocate(uint64_t size) {
  if (size == 0) return {};
  // A full disk must show here: through a mapping it would be a fatal signal.
  int error;
  while ((error = ::posix_fallocate(fd_, 0, off_t(size))) == EINTR) {
  }
  errno = error;
  if (error != 0)
    return system_error(shown_, "cannot take " + std::to_string(size) + " bytes of disk");
  end_ = size;
  return {};
}

Status AtomicFile::set_permissions(std::filesystem::perms bits) {
  if (::fchmod(fd_, mode_t(bits)) != 0) return system_error(shown_, "cannot set permissions");
  return {};
}

// The pages in pieces, so that whoever waits can be heard; then the file with all it needs.
Status AtomicFile::sync(const Poll& poll) {
  DW_RETURN_IF_ERROR(ask(poll));
  for (uint64_t at = 0; poll && at < end_; at += kPieceBytes) {
    const unsigned flags =
        SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER;
    if (::sync_file_range(fd_, off_t(at), off_t(kPieceBytes), flags) != 0) {
      // Where the filesystem has no such call the fsync below does it all. A write that failed is
      // told only once: here.
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
  uint8_t* data = nullptr;
  if (size != 0) {
    void* mapped = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file.fd_, 0);
    if (mapped == MAP_FAILED) return system_error(file.shown_, "cannot map");
    data = static_cast<uint8_t*>(mapped);
  }
  return MutableFile(std::move(file), data, size);
}

MutableFile::MutableFile(MutableFile&& other) noexcept
    : file_(std::move(other.file_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(other.size_) {}

MutableFile::~MutableFile() {
  if (data_ != nullptr) ::munmap(data_, size_);
}

Status MutableFile::commit(const Poll& poll) {
  for (size_t at = 0; at < size_; at += kPieceBytes) {
    DW_RETURN_IF_ERROR(ask(poll));
    if (::msync(data_ + at, std::min<size_t>(kPieceBytes, size_ - at), MS_SYNC) != 0)
      return system_error(file_.shown_, "cannot sync");
  }
  return file_.commit(poll);
}

Result<std::string> read_text_file(const std::filesystem::path& path, uint64_t max_bytes) {
  DW_ASSIGN_OR_RETURN(auto file, MappedFile::open(path));
  if (file->bytes().size() > max_bytes) {
    return corruption(path.string() + ": " + std::to_string(file->bytes().size()) +
                      " bytes is over the limit of " + std::to_string(max_bytes));
  }
  return std::string(reinterpret_cast<const char*>(file->bytes().data()), file->bytes().size());
}

Status write_text_file(const std::filesystem::path& path, std::string_view text,
                       const std::filesystem::path& shown) {
  DW_ASSIGN_OR_RETURN(auto file, AtomicFile::create(path, shown));
  DW_RETURN_IF_ERROR(file.write({reinterpret_cast<const uint8_t*>(text.data()), text.size()}));
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
