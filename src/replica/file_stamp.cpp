#include "replica/file_stamp.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <ctime>

#include "base/file.h"

namespace deltawire {
namespace fs = std::filesystem;
namespace {

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
  if (::stat(file.c_str(), &info) != 0) {
    std::string message = file.string() + ": cannot stat: " + std::strerror(errno);
    return errno == ENOENT ? not_found(std::move(message)) : io_error(std::move(message));
  }
  return stamp_from(info);
}

Result<FileStamp> mark_file(int fd, const fs::path& file) {
  timespec times[2] = {{0, UTIME_OMIT}, {}};
  ::clock_gettime(CLOCK_REALTIME, &times[1]);
  times[1].tv_nsec |= 1;  // between the kernel's steps
  if (::futimens(fd, times) != 0) {
    // A file of somebody else's that we may write takes the present time only.
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

}  // namespace deltawire
