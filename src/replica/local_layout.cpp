#include "replica/local_layout.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>
#include <system_error>

#include "base/process.h"
#include "chain/chain.h"
#include "format/checkpoint_files.h"
#include "tensor/text.h"

namespace deltawire {
namespace fs = std::filesystem;
namespace {

std::optional<uint64_t> version_of_folder(std::string_view name) {
  uint64_t version = 0;
  if (!is_version_folder(name) || name[0] != 'v' || !parse_number(name.substr(1), &version)) {
    return {};
  }
  return version;
}

std::string version_folder(uint64_t version) {
  char name[24];
  std::snprintf(name, sizeof name, "v%010llu", static_cast<unsigned long long>(version));
  return name;
}

}  // namespace

fs::path LocalLayout::version(uint64_t version) const { return root / version_folder(version); }

fs::path LocalLayout::feed_version(uint64_t version) const {
  return feed() / version_folder(version);
}

std::vector<uint64_t> version_folders(const fs::path& folder) {
  std::vector<uint64_t> versions;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    if (const auto version = version_of_folder(it->path().filename().string())) {
      versions.push_back(*version);
    }
  }
  std::sort(versions.begin(), versions.end());
  return versions;
}

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
