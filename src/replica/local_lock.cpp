#include "replica/local_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "base/process.h"
#include "chain/chain.h"

namespace deltawire {
namespace {

std::string read_holder(int fd) {
  char text[300];
  const ssize_t size = ::pread(fd, text, sizeof text, 0);
  std::string holder(text, size > 0 ? size_t(size) : 0);
  holder.erase(holder.find_last_not_of('\n') + 1);
  return holder.empty() ? "another process" : holder;
}

}  // namespace

Result<LocalLock> LocalLock::take(const std::filesystem::path& file) {
  LocalLock lock(::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
  if (lock.fd_ < 0) {
    return io_error(file.string() + ": cannot open: " + std::strerror(errno));
  }
  while (::flock(lock.fd_, LOCK_EX | LOCK_NB) != 0) {
    if (errno == EINTR) continue;
    if (errno != EWOULDBLOCK) {
      return io_error(file.string() + ": cannot lock: " + std::strerror(errno));
    }
    return conflict(file.parent_path().parent_path().string() + ": in use by " +
                    read_holder(lock.fd_));
  }
  const std::string holder = process_name() + "\n";
  if (::ftruncate(lock.fd_, 0) != 0 ||
      ::pwrite(lock.fd_, holder.data(), holder.size(), 0) != ssize_t(holder.size())) {
    return io_error(file.string() + ": cannot write: " + std::strerror(errno));
  }
  return lock;
}

bool LocalLock::is_at(const std::filesystem::path& file) const {
  struct stat own, there;
  return ::fstat(fd_, &own) == 0 && ::stat(file.c_str(), &there) == 0 &&
         own.st_dev == there.st_dev && own.st_ino == there.st_ino;
}

LocalLock::~LocalLock() {
  if (fd_ >= 0) ::close(fd_);
}

}  // namespace deltawire
