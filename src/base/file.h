// Files as deltawire uses them: mapped for reading, written beside their name and renamed when
// whole.
#pragma once

#include <unistd.h>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "base/mapping.h"
#include "deltawire/status.h"

namespace deltawire {

// A file descriptor that closes itself, errors of system calls, and calls that retry after EINTR.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

// "PATH: cannot open: No such file or directory". NotFound for a file that is not there.
inline Status system_error(const std::filesystem::path& path, std::string_view what,
                           int error = errno) {
  std::string message = path.string() + ": " + std::string(what) + ": " + std::strerror(error);
  return error == ENOENT ? not_found(std::move(message)) : io_error(std::move(message));
}

// All of the bytes; false: errno says why.
bool write_at(int fd, uint64_t offset, Bytes bytes);
// The same; `path` is for messages.
Status write_all(int fd, uint64_t offset, Bytes bytes, const std::filesystem::path& path);
// Reads until `out` is full or the file ends. The number of bytes; -1: errno says why.
ssize_t read_at(int fd, uint64_t offset, MutableBytes out);

// Reserves disk space for these bytes.
Status take_space(int fd, uint64_t offset, uint64_t size, const std::filesystem::path& path);

// Shows whether a file was written to.
struct FileIdentity {
  uint64_t device = 0, inode = 0, size_bytes = 0, links = 0;
  int64_t modified_ns = 0, changed_ns = 0;  // since 1970: of the contents, of anything
};

// A read-only mapping of a whole file. Keeps the bytes valid until it is destroyed. Thread-safe.
//
// Another process may write to the file meanwhile, which changes the bytes, or truncate it, which
// turns them into zeros. So callers call check_whole() or check_unchanged() before they use what
// they have read.
class MappedFile {
 public:
  static Result<std::shared_ptr<MappedFile>> open(const std::filesystem::path& path);
  // For large files that are copied piece by piece: copy_out() reads the file, and no page is
  // mapped.
  static Result<std::shared_ptr<MappedFile>> open_large(const std::filesystem::path& path);
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  Bytes bytes() const noexcept { return {mapping_.data(), size_}; }
  const std::filesystem::path& path() const noexcept { return path_; }

  // Io if the file was truncated, or bytes could not be read from the disk.
  Status check_whole() const;
  // Also Io if the file was written to since it was opened, judging by its size and times. A file
  // that was replaced by another of the same name counts as unchanged.
  Status check_unchanged() const;

 private:
  MappedFile() = default;
  static Result<std::shared_ptr<MappedFile>> open(const std::filesystem::path& path, bool large);
  std::filesystem::path path_;
  FileIdentity opened_;
  Mapping mapping_;
  size_t size_ = 0;
};

// Called between the pieces of long writes and syncs. An error ends them, and the file does not
// appear.
using Poll = std::function<Status()>;

// A file that appears under its name whole or not at all: written to a temporary name in the same
// folder, fsynced, renamed, folder fsynced. Destroyed before commit(), it leaves nothing behind.
class AtomicFile {
 public:
  // `shown` is the name for messages if it differs from `path`, as for a file in a temporary
  // folder.
  static Result<AtomicFile> create(const std::filesystem::path& path,
                                   const std::filesystem::path& shown = {});
  ~AtomicFile();
  AtomicFile(AtomicFile&& other) noexcept;
  AtomicFile& operator=(AtomicFile&&) = delete;

  Status write(Bytes bytes, const Poll& poll = {});  // at the current end
  Status write_at(uint64_t offset, Bytes bytes);
  Status allocate(uint64_t size);  // takes the disk space now
  Status set_permissions(std::filesystem::perms bits);
  Status commit(const Poll& poll = {});

 private:
  friend class MutableFile;
  AtomicFile() = default;
  Status sync(const Poll& poll);
  std::filesystem::path path_, shown_, temporary_;
  int fd_ = -1;
  uint64_t end_ = 0;
};

// The same, mapped for writing: for contents that are patched in place rather than streamed. Pages
// are on disk when commit() returns; it fails if bytes were lost, on a full disk.
class MutableFile {
 public:
  static Result<MutableFile> create(const std::filesystem::path& path, uint64_t size,
                                    const std::filesystem::path& shown = {});
  MutableFile(MutableFile&& other) noexcept = default;
  MutableFile& operator=(MutableFile&&) = delete;

  MutableBytes bytes() noexcept { return {mapping_.data(), size_}; }
  bool whole() const noexcept { return !mapping_.broken(); }  // no bytes were lost yet
  Status set_permissions(std::filesystem::perms bits) { return file_.set_permissions(bits); }
  Status commit(const Poll& poll = {});

 private:
  MutableFile(AtomicFile file, Mapping mapping, size_t size)
      : file_(std::move(file)), mapping_(std::move(mapping)), size_(size) {}
  AtomicFile file_;
  Mapping mapping_;
  size_t size_;
};

Result<std::string> read_text_file(const std::filesystem::path& path, uint64_t max_bytes);
// Atomic; `shown` as in AtomicFile.
Status write_text_file(const std::filesystem::path& path, std::string_view text,
                       const std::filesystem::path& shown = {});
Status sync_directory(const std::filesystem::path& path);

}  // namespace deltawire
