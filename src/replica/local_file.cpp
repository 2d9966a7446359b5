#include "replica/local_file.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "base/file.h"

namespace deltawire {
namespace fs = std::filesystem;
namespace {

Status copy_bytes(int from, int to, uint64_t size, const fs::path& path) {
  uint64_t done = 0;
  while (done < size) {
    const ssize_t n = ::copy_file_range(from, nullptr, to, nullptr, size - done, 0);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;  // not on this pair of filesystems, or not any more
    done += uint64_t(n);
  }
  std::vector<uint8_t> buffer(done < size ? size_t{1} << 20 : 0);
  while (done < size) {
    const ssize_t n = ::pread(from, buffer.data(), buffer.size(), off_t(done));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return system_error(path, "cannot copy", n < 0 ? errno : EIO);
    DW_RETURN_IF_ERROR(write_all(to, done, {buffer.data(), size_t(n)}, path));
    done += uint64_t(n);
  }
  return {};
}

}  // namespace

Result<PatchedFile> PatchedFile::open(const fs::path& path) {
  PatchedFile file;
  file.path_ = path;
  file.fd_ = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (file.fd_ < 0) return system_error(path, "cannot open for writing", errno);
  struct stat info;
  if (::fstat(file.fd_, &info) != 0) return system_error(path, "cannot stat", errno);
  file.size_ = size_t(info.st_size);
  if (file.size_ == 0) return file;
  if (uint64_t(info.st_blocks) * 512 < file.size_) {
    int error;
    while ((error = ::posix_fallocate(file.fd_, 0, info.st_size)) == EINTR) {
    }
    if (error == ENOSPC || error == EDQUOT) {
      return system_error(path, "cannot take the disk space of its holes", error);
    }
  }
  file.mapping_ = Mapping(file.fd_, file.size_, Mapping::Access::kReadWrite);
  if (file.mapping_.data() == nullptr) return system_error(path, "cannot map for writing", errno);
  return file;
}

PatchedFile::PatchedFile(PatchedFile&& other) noexcept
    : path_(std::move(other.path_)),
      fd_(std::exchange(other.fd_, -1)),
      mapping_(std::move(other.mapping_)),
      size_(other.size_) {}

PatchedFile::~PatchedFile() {
  if (fd_ >= 0) ::close(fd_);
}

Status PatchedFile::write_at(uint64_t offset, Bytes contents) {
  return write_all(fd_, offset, contents, path_);
}

Status PatchedFile::check_whole() const {
  if (!mapping_.broken()) return {};
  struct stat info;
  if (::fstat(fd_, &info) == 0 && size_t(info.st_size) < size_) {
    return io_error(path_.string() +
                    ": was cut short while it was written: " + std::to_string(size_) +
                    " bytes before, " + std::to_string(info.st_size) + " now");
  }
  return system_error(path_, "cannot write", ENOSPC);
}

Status PatchedFile::sync() {
  DW_RETURN_IF_ERROR(check_whole());
  if (mapping_.data() != nullptr && ::msync(mapping_.data(), size_, MS_SYNC) != 0) {
    return system_error(path_, "cannot sync", errno);
  }
  if (::fsync(fd_) != 0) return system_error(path_, "cannot sync", errno);
  return {};
}

void map_all(MutableBytes bytes) {
#ifdef MADV_POPULATE_WRITE
  const auto page = uintptr_t(::sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<uintptr_t>(bytes.data()) & ~(page - 1);
  const uintptr_t end = reinterpret_cast<uintptr_t>(bytes.data()) + bytes.size();
  (void)::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_POPULATE_WRITE);
#else
  (void)bytes;
#endif
}

Status clone_file(const fs::path& from, const fs::path& to) {
  const Descriptor source(::open(from.c_str(), O_RDONLY | O_CLOEXEC));
  if (source.get() < 0) return system_error(from, "cannot open", errno);
  struct stat info;
  if (::fstat(source.get(), &info) != 0) return system_error(from, "cannot stat", errno);
  const Descriptor target(::open(to.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (target.get() < 0) return system_error(to, "cannot create", errno);
  if (::ioctl(target.get(), FICLONE, source.get()) == 0) return {};
  DW_RETURN_IF_ERROR(take_space(target.get(), uint64_t(info.st_size), to));
  return copy_bytes(source.get(), target.get(), uint64_t(info.st_size), to);
}

Status sync_file(const fs::path& path) {
  const Descriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (fd.get() < 0) return system_error(path, "cannot open", errno);
  if (::fsync(fd.get()) != 0) return system_error(path, "cannot sync", errno);
  return {};
}

}  // namespace deltawire
