// A file for each worker, which holds a lock on it while it lives and writes there which version
// it has. A worker that died, in whatever way, holds no lock.
#include "replica/feed.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <optional>
#include <thread>
#include <utility>

#include "base/file.h"
#include "base/folder.h"
#include "base/log.h"
#include "base/sync_point.h"
#include "replica/local_file.h"
#include "replica/local_state.h"
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

constexpr size_t kLineBytes = 128;  // one write of one length: a reader sees the old or the new

std::string worker_line(const Identity& identity) {
  std::string line =
      std::to_string(identity.version) + " " + identity.run + " " + identity.manifest + " ";
  line.resize(kLineBytes, ' ');
  return line;
}

Identity read_worker(int fd) {
  char text[kLineBytes];
  const ssize_t size = ::pread(fd, text, sizeof text, 0);
  std::string_view rest(text, size > 0 ? size_t(size) : 0);
  const auto word = [&] {
    const std::string_view found = rest.substr(0, rest.find(' '));
    rest.remove_prefix(std::min(rest.size(), found.size() + 1));
    return found;
  };
  Identity identity;
  if (!parse_number(word(), &identity.version)) return {};
  identity.run = word();
  identity.manifest = word();
  return identity;
}

}  // namespace

std::vector<Identity> feed_workers(const fs::path& local) {
  const LocalLayout layout{local};
  std::vector<Identity> workers;
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
    workers.push_back(read_worker(fd.get()));
  }
  return workers;
}

std::optional<Identity> slowest_feed_worker(const fs::path& local, const Identity& held) {
  const std::vector<Identity> workers = feed_workers(local);
  const auto slowest =
      std::min_element(workers.begin(), workers.end(), [&](const Identity& a, const Identity& b) {
        return std::pair(a.run == held.run, a.version) < std::pair(b.run == held.run, b.version);
      });
  if (slowest == workers.end() || slowest->run.empty()) return {};
  return *slowest;
}

Result<FeedWorker> FeedWorker::join(const fs::path& local, const std::string& name,
                                    const Identity& version) {
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

Status FeedWorker::took(const Identity& version) {
  const std::string line = worker_line(version);
  const Bytes bytes(reinterpret_cast<const uint8_t*>(line.data()), line.size());
  return write_all(fd_, 0, bytes, file_);
}

FeedWorker::FeedWorker(FeedWorker&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), file_(std::exchange(other.file_, {})) {}

FeedWorker::~FeedWorker() {
  if (fd_ < 0) return;
  if (!file_.empty()) ::unlink(file_.c_str());
  ::close(fd_);
}

namespace {

// The same file under another name; a copy where the filesystem has no links.
Status link_file(const fs::path& from, const fs::path& to) {
  if (::link(from.c_str(), to.c_str()) == 0) return {};
  return clone_file(from, to);
}

Status link_step(const LocalLayout& layout, const JournalRecord& record) {
  const fs::path to = layout.feed_version(record.version);
  fs::path temporary = to;
  temporary += ".new";
  DW_RETURN_IF_ERROR(remove_tree(temporary));
  DW_RETURN_IF_ERROR(make_folder(temporary));
  for (const std::string& name : record.redo) {
    DW_RETURN_IF_ERROR(link_file(layout.journal() / "redo" / name, temporary / name));
  }
  DW_RETURN_IF_ERROR(
      link_file(layout.journal() / kJournalRecordName, temporary / kJournalRecordName));
  DW_SYNC_POINT("replica: feed linked");
  DW_RETURN_IF_ERROR(remove_tree(to));  // of an earlier pull of this version
  DW_RETURN_IF_ERROR(rename_path(temporary, to));
  DW_SYNC_POINT("replica: feed in place");
  return {};
}

void say(const LocalLayout& layout, const Status& status) {
  log_event(LogLevel::kWarning, "replica.feed", {{"local", layout.root}, {"error", status}});
}

uint64_t bytes_in(const fs::path& folder) {
  uint64_t bytes = 0;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    std::error_code gone;
    const uint64_t size = fs::file_size(it->path(), gone);
    if (!gone) bytes += size;
  }
  return bytes;
}

// A process that died while it linked a step.
void remove_unfinished(const LocalLayout& layout) {
  std::error_code error;
  std::vector<fs::path> unfinished;
  for (fs::directory_iterator it(layout.feed(), error), end; !error && it != end;
       it.increment(error)) {
    if (it->path().extension() == ".new") unfinished.push_back(it->path());
  }
  for (const fs::path& path : unfinished) (void)remove_tree(path);
}

}  // namespace

void add_to_feed(const LocalLayout& layout, const JournalRecord& record) {
  const Status status = link_step(layout, record);
  if (!status.ok()) say(layout, status);
}

void begin_feed(const LocalLayout& layout, const JournalRecord& record) {
  const fs::path folder = layout.feed_version(record.version);
  const Result<JournalRecord> known = read_journal_record(folder);
  if (known.ok() && known->manifest == record.manifest) return;
  fs::path temporary = folder;
  temporary += ".new";
  const Status status = [&]() -> Status {
    DW_RETURN_IF_ERROR(remove_tree(temporary));
    DW_RETURN_IF_ERROR(make_folder(temporary));
    DW_ASSIGN_OR_RETURN(const std::string text, serialise_journal_record(record));
    DW_RETURN_IF_ERROR(write_text_file(temporary / kJournalRecordName, text));
    DW_RETURN_IF_ERROR(remove_tree(folder));
    return rename_path(temporary, folder);
  }();
  if (!status.ok()) say(layout, status);
}

void prune_feed(const LocalLayout& layout, const Identity& held, const FeedLimits& limits) {
  remove_unfinished(layout);
  // A worker that has not said what it has may need all of it; one of another run needs nothing.
  std::optional<uint64_t> slowest;
  for (const Identity& worker : feed_workers(layout.root)) {
    if (!worker.run.empty() && worker.run != held.run) continue;
    slowest = std::min(slowest.value_or(worker.version), worker.version);
  }
  std::vector<uint64_t> versions = version_folders(layout.feed());
  std::reverse(versions.begin(), versions.end());
  uint64_t bytes = 0;
  for (size_t i = 0; i < versions.size(); ++i) {
    const fs::path folder = layout.feed_version(versions[i]);
    if (i > 0) bytes += bytes_in(folder);
    const bool is_wanted =
        i < limits.keep_always || (slowest && versions[i] >= *slowest && i < limits.keep_at_most);
    if (is_wanted && bytes <= limits.max_bytes) continue;
    const Status status = remove_tree(folder);
    if (!status.ok()) say(layout, status);
  }
}

}  // namespace deltawire
