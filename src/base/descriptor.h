// A file descriptor that closes itself, what a failed system call says, and calls that are finished
// whatever interrupts them.
#pragma once

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "deltawire/status.h"

namespace deltawire {

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

// All of the bytes. `path` is for messages.
Status write_all(int fd, uint64_t offset, Bytes bytes, const std::filesystem::path& path);
// The disk space of the first `size` bytes, now.
Status take_space(int fd, uint64_t size, const std::filesystem::path& path);

}  // namespace deltawire
