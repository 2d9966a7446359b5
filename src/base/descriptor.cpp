#include "base/descriptor.h"

#include <fcntl.h>

namespace deltawire {

Status write_all(int fd, uint64_t offset, Bytes bytes, const std::filesystem::path& path) {
  for (size_t done = 0; done < bytes.size();) {
    const ssize_t n = ::pwrite(fd, bytes.data() + done, bytes.size() - done, off_t(offset + done));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return system_error(path, "cannot write", n < 0 ? errno : EIO);
    done += size_t(n);
  }
  return {};
}

Status take_space(int fd, uint64_t size, const std::filesystem::path& path) {
  if (size == 0) return {};
  int error;
  while ((error = ::posix_fallocate(fd, 0, off_t(size))) == EINTR) {
  }
  if (error == 0) return {};
  return system_error(path, "cannot take " + std::to_string(size) + " bytes of disk", error);
}

}  // namespace deltawire
