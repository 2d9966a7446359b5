#include "replica/local_file.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <linux/magic.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/guard.h"
#include "base/sync_point.h"

namespace deltawire {
namespace fs = std::filesystem;
namespace {

Status copy_bytes(int from, int to, uint64_t size, const fs::path& path) {
  uint64_t done = 0;
  while (done < size) {
    const ssize_t n = ::copy_file_range(from, nullptr, to, nullptr, size - done, 0);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;  // not supported here, or no longer
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

FileStamp stamp_from(const struct stat& info) {
  const auto nanoseconds = [](const timespec& time) {
    return int64_t(time.tv_sec) * 1'000'000'000 + time.tv_nsec;
  };
  return {uint64_t(info.st_size), uint64_t(info.st_ino), nanoseconds(info.st_mtim),
          nanoseconds(info.st_ctim)};
}

}  // namespace

Result<FileStamp> stamp_of(const fs::path& file) {
  struct stat info;
  if (::stat(file.c_str(), &info) != 0) return system_error(file, "cannot stat");
  return stamp_from(info);
}

Result<FileStamp> mark_file(int fd, const fs::path& file) {
  timespec times[2] = {{0, UTIME_OMIT}, {}};
  ::clock_gettime(CLOCK_REALTIME, &times[1]);
  times[1].tv_nsec |= 1;  // not a multiple of the kernel's clock tick
  if (::futimens(fd, times) != 0) {
    // For files of another owner only the current time can be set.
    if (errno != EPERM || ::futimens(fd, nullptr) != 0) {
      return system_error(file, "cannot set its time", errno);
    }
  }
  struct stat info;
  if (::fstat(fd, &info) != 0) return system_error(file, "cannot stat", errno);
  return stamp_from(info);
}

Result<FileStamps> stamp_files(const fs::path& folder, const std::vector<std::string>& names) {
  FileStamps stamps;
  for (const std::string& name : names) {
    DW_ASSIGN_OR_RETURN(stamps[name], stamp_of(folder / name));
  }
  return stamps;
}

std::optional<std::string> find_edited(const fs::path& folder, const FileStamps& left) {
  for (const auto& [name, stamp] : left) {
    const Result<FileStamp> now = stamp_of(folder / name);
    if (!now.ok()) return now.status().message();
    if (*now != stamp) return (folder / name).string() + ": was changed since it was written";
  }
  return {};
}

Result<PatchedFile> PatchedFile::open(const fs::path& path) {
  PatchedFile file;
  file.path_ = path;
  file.fd_ = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (file.fd_ < 0) return system_error(path, "cannot open for writing", errno);
  struct stat info;
  if (::fstat(file.fd_, &info) != 0) return system_error(path, "cannot stat", errno);
  file.size_ = size_t(info.st_size);
  if (file.size_ == 0) return file;
  struct statfs system;
  file.on_tmpfs_ = ::fstatfs(file.fd_, &system) == 0 && system.f_type == TMPFS_MAGIC;
  file.mapping_ = Mapping(file.fd_, file.size_, Mapping::Access::kReadWrite);
  if (file.mapping_.data() == nullptr) return system_error(path, "cannot map for writing", errno);
  return file;
}

PatchedFile::PatchedFile(PatchedFile&& other) noexcept
    : path_(std::move(other.path_)),
      fd_(std::exchange(other.fd_, -1)),
      mapping_(std::move(other.mapping_)),
      size_(other.size_),
      on_tmpfs_(other.on_tmpfs_) {}

PatchedFile::~PatchedFile() {
  if (fd_ >= 0) ::close(fd_);
}

Status PatchedFile::take_holes() {
  struct stat info;
  if (::fstat(fd_, &info) != 0) return system_error(path_, "cannot stat", errno);
  if (uint64_t(info.st_blocks) * 512 >= size_) return {};
  int error;
  while ((error = ::posix_fallocate(fd_, 0, off_t(size_))) == EINTR) {
  }
  if (error != ENOSPC && error != EDQUOT) return {};
  return system_error(path_, "cannot allocate disk space for its holes", error);
}

Status PatchedFile::write_at(uint64_t offset, Bytes contents) {
  return write_all(fd_, offset, contents, path_);
}

Status PatchedFile::check_whole() const {
  if (!mapping_.broken()) return {};
  struct stat info;
  if (::fstat(fd_, &info) == 0 && size_t(info.st_size) < size_) {
    return io_error(path_.string() +
                    ": was truncated while it was written: " + std::to_string(size_) +
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

Result<PatchedFiles::File*> PatchedFiles::open(const CheckpointTensor& tensor) {
  std::optional<File>& own = files_[tensor.file];
  if (own) return &*own;
  const CheckpointFile& file = checkpoint_.files()[tensor.file];
  DW_ASSIGN_OR_RETURN(PatchedFile opened, PatchedFile::open(file.path));
  if (opened.bytes().size() != file.bytes.size()) {
    return base_mismatch(file.path.string() + ": another process changed its size");
  }
  return &own.emplace(File{std::move(opened)});
}

Result<Bytes> PatchedFiles::to_read(const CheckpointTensor& tensor) {
  const std::lock_guard lock(mutex_);
  DW_ASSIGN_OR_RETURN(File* const own, open(tensor));
  if (!own->file.written_after_read()) return tensor.view.bytes;
  return Bytes(own->file.bytes()).subspan(tensor.offset, tensor.view.bytes.size());
}

Result<MutableBytes> PatchedFiles::to_write(const CheckpointTensor& tensor) {
  const std::lock_guard lock(mutex_);
  DW_ASSIGN_OR_RETURN(File* const own, open(tensor));
  if (!own->written) DW_RETURN_IF_ERROR(own->file.take_holes());
  own->written = true;
  return own->file.bytes().subspan(tensor.offset, tensor.view.bytes.size());
}

Status PatchedFiles::write_at(const CheckpointTensor& tensor, uint64_t offset, Bytes contents) {
  DW_RETURN_IF_ERROR(to_write(tensor).status());
  return files_[tensor.file]->file.write_at(tensor.offset + offset, contents);
}

Status PatchedFiles::check_whole() const {
  for (const std::optional<File>& own : files_) {
    if (own) DW_RETURN_IF_ERROR(own->file.check_whole());
  }
  return {};
}

Result<FileStamps> PatchedFiles::mark() {
  FileStamps stamps;
  for (size_t i = 0; i < files_.size(); ++i) {
    if (!files_[i] || !files_[i]->written) continue;
    DW_ASSIGN_OR_RETURN(stamps[checkpoint_.files()[i].name], files_[i]->file.mark());
  }
  return stamps;
}

Status PatchedFiles::sync(ThreadPool* pool) {
  return parallel_try("syncing files", pool, files_.size(), [&](size_t i, unsigned) -> Status {
    if (!files_[i] || !files_[i]->written) return {};
    DW_RETURN_IF_ERROR(files_[i]->file.sync());
    DW_SYNC_POINT("replica: patched file on disk");
    return {};
  });
}

void map_all(MutableBytes bytes, ThreadPool* pool) {
#ifdef MADV_POPULATE_WRITE
  constexpr uintptr_t kPieceBytes = 4 << 20;
  const auto page = uintptr_t(::sysconf(_SC_PAGESIZE));
  const auto first = reinterpret_cast<uintptr_t>(bytes.data()) & ~(page - 1);
  const uintptr_t end = reinterpret_cast<uintptr_t>(bytes.data()) + bytes.size();
  parallel_for(pool, (end - first + kPieceBytes - 1) / kPieceBytes, [&](size_t i, unsigned) {
    const uintptr_t begin = first + i * kPieceBytes;
    (void)::madvise(reinterpret_cast<void*>(begin), std::min(kPieceBytes, end - begin),
                    MADV_POPULATE_WRITE);
  });
#else
  (void)bytes, (void)pool;
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
  DW_RETURN_IF_ERROR(take_space(target.get(), 0, uint64_t(info.st_size), to));
  return copy_bytes(source.get(), target.get(), uint64_t(info.st_size), to);
}

Status write_body(const fs::path& path, const Body& body, ThreadPool* pool) {
  constexpr uint64_t kPieceBytes = uint64_t{4} << 20;
  {
    const Descriptor fd(::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    if (fd.get() < 0) return system_error(path, "cannot create", errno);
    if (::ftruncate(fd.get(), off_t(body.size())) != 0) return system_error(path, "cannot extend");
  }
  const auto fill = [&]() -> Status {
    DW_ASSIGN_OR_RETURN(PatchedFile file, PatchedFile::open(path));
    const size_t pieces = size_t((body.size() + kPieceBytes - 1) / kPieceBytes);
    DW_RETURN_IF_ERROR(parallel_try("copying", pool, pieces, [&](size_t i, unsigned) -> Status {
      const uint64_t at = i * kPieceBytes;
      return body.read(at, file.bytes().subspan(at, std::min(kPieceBytes, body.size() - at)));
    }));
    return file.check_whole();
  };
  Status status = fill();
  if (!status.ok()) ::unlink(path.c_str());  // would take the space of the next attempt
  return status;
}

Status sync_file(const fs::path& path) {
  const Descriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (fd.get() < 0) return system_error(path, "cannot open", errno);
  if (::fsync(fd.get()) != 0) return system_error(path, "cannot sync", errno);
  return {};
}

}  // namespace deltawire
