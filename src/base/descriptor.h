// A file descriptor that closes itself, and what a failed system call says.
#pragma once

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string>
#include <string_view>

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

}  // namespace deltawire
