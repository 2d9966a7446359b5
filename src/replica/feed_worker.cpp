// Who reads a feed: a file for each worker, which holds a lock on it while it lives and writes
// there which version it has. A worker that died, in whatever way, holds no lock.

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <thread>
#include <utility>

#include "base/descriptor.h"
#include "base/folder.h"
#include "deltawire/feed.h"
#include "replica/local_layout.h"
#include "tensor/text.h"

namespace deltawire {
namespace fs = std::filesystem;
namespace {

constexpr unsigned kTries = 50;

bool take_lock(int fd) {
  while (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EINTR) return false;
  }
  return true;
}

// Removed by a pruner between open() and flock(): the lock is on a file that nobody finds.
bool is_still_at(int fd, const fs::path& file) {
  struct stat own, there;
  return ::fstat(fd, &own) == 0 && ::stat(file.c_str(), &there) == 0 && own.st_ino == there.st_ino;
}

// A worker that has not said yet which version it has needs all of them.
uint64_t read_worker_version(int fd) {
  char text[24];
  const ssize_t size = ::pread(fd, text, sizeof text, 0);
  uint64_t version = 0;
  std::string_view digits(text, size > 0 ? size_t(size) : 0);
  digits = digits.substr(0, digits.find(' '));
  return parse_number(digits, &version) ? version : 0;
}

}  // namespace

std::optional<uint64_t> slowest_feed_worker(const fs::path& local) {
  const LocalLayout layout{local};
  std::optional<uint64_t> slowest;
  std::error_code error;
  std::vector<fs::path> files;
  for (fs::directory_iterator it(layout.feed_workers(), error), end; !error && it != end;
       it.increment(error)) {
    files.push_back(it->path());
  }
  for (const fs::path& file : files) {
    const Descriptor fd(::open(file.c_str(), O_RDWR | O_CLOEXEC));
    if (fd.get() < 0) continue;
    if (take_lock(fd.get())) {  // nobody holds it
      ::unlink(file.c_str());
      continue;
    }
    const uint64_t version = read_worker_version(fd.get());
    slowest = std::min(slowest.value_or(version), version);
  }
  return slowest;
}

Result<FeedWorker> FeedWorker::join(const fs::path& local, const std::string& name,
                                    uint64_t version) {
  if (name.empty() || name.find('/') != std::string::npos || name[0] == '.') {
    return invalid_argument(quote(name) + ": not a name for a worker");
  }
  const LocalLayout layout{local};
  DW_RETURN_IF_ERROR(make_folder(layout.feed_workers()));
  const fs::path file = layout.feed_workers() / name;
  for (unsigned tries = 1;; ++tries) {
    const int fd = ::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0) return system_error(file, "cannot open");
    FeedWorker worker(fd, file);
    if (!take_lock(fd)) {
      worker.file_.clear();  // the other's
      if (tries < kTries) {  // a pruner's, which holds it for a moment to see whether anybody does
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
        continue;
      }
      return conflict(local.string() + ": a worker " + quote(name) + " is there already");
    }
    if (!is_still_at(fd, file)) {
      worker.file_.clear();
      continue;
    }
    DW_RETURN_IF_ERROR(worker.took(version));
    return worker;
  }
}

Status FeedWorker::took(uint64_t version) {
  std::string text = std::to_string(version);
  text.resize(20, ' ');  // one write of one length: a reader sees the old one or the new one
  const Bytes bytes(reinterpret_cast<const uint8_t*>(text.data()), text.size());
  return write_all(fd_, 0, bytes, file_);
}

FeedWorker::FeedWorker(FeedWorker&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), file_(std::exchange(other.file_, {})) {}

FeedWorker::~FeedWorker() {
  if (fd_ < 0) return;
  if (!file_.empty()) ::unlink(file_.c_str());
  ::close(fd_);
}

}  // namespace deltawire
