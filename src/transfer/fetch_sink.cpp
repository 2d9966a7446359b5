#include "transfer/fetch_sink.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "base/descriptor.h"
#include "base/guard.h"

namespace deltawire {
namespace {

constexpr size_t kReadBytes = size_t{1} << 20;

Status errno_status(const std::filesystem::path& path, std::string_view what, int error) {
  return io_error(path.string() + ": " + std::string(what) + ": " + std::strerror(error));
}

}  // namespace

Result<std::unique_ptr<FetchSink>> FetchSink::create(const std::filesystem::path& path,
                                                     uint64_t size_bytes,
                                                     std::atomic<uint64_t>* received,
                                                     const std::atomic<bool>* stop,
                                                     Follower* follower) {
  std::unique_ptr<FetchSink> sink(new FetchSink);
  sink->path_ = path;
  sink->size_bytes_ = size_bytes;
  sink->received_ = received;
  sink->stop_ = stop;
  sink->fd_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (sink->fd_ < 0) return errno_status(path, "cannot create", errno);
  sink->follower_ = follower;
  if (follower != nullptr) return sink;
  DW_RETURN_IF_ERROR(take_space(sink->fd_, size_bytes, path));
  return sink;
}

FetchSink::~FetchSink() {
  if (fd_ >= 0) ::close(fd_);
}

Status FetchSink::write_at(uint64_t offset, std::span<const uint8_t> bytes) {
  return write_all(fd_, offset, bytes, path_);
}

Status FetchSink::write(uint64_t offset, std::span<const uint8_t> bytes) {
  if (stop_->load()) return cancelled("stopped on request");
  if (offset > size_bytes_ || bytes.size() > size_bytes_ - offset) {
    return corruption("a piece of " + std::to_string(bytes.size()) + " bytes at " +
                      std::to_string(offset) + " goes past the end at " +
                      std::to_string(size_bytes_));
  }
  if (bytes.empty()) return {};
  if (follower_ != nullptr) return follow(offset, bytes);
  DW_RETURN_IF_ERROR(write_at(offset, bytes));
  received_->fetch_add(bytes.size());
  const uint64_t end = offset + bytes.size();
  const std::lock_guard lock(mutex_);
  if (twice_) return {};
  const auto next = early_.lower_bound(offset);
  if (offset < hashed_ || (next != early_.end() && next->first < end) ||
      (next != early_.begin() && std::prev(next)->second > offset)) {
    twice_ = true;
    return {};
  }
  if (offset > hashed_) {
    early_.emplace(offset, end);
    return {};
  }
  hasher_.update(bytes);
  hashed_ = end;
  return hash_early_pieces();
}

void FetchSink::use(std::span<const uint8_t> bytes) {
  hasher_.update(bytes);
  if (follower_ == nullptr || !followed_.ok()) return;
  followed_ = guard_memory("unpacking", [&]() -> Status { return follower_->take(bytes); });
}

// What was used already is not used again, whatever it is now: the digest tells.
Status FetchSink::follow(uint64_t offset, std::span<const uint8_t> bytes) {
  received_->fetch_add(bytes.size());
  const uint64_t end = offset + bytes.size();
  const std::lock_guard lock(mutex_);
  if (end <= hashed_) return {};
  if (offset > hashed_) {
    DW_RETURN_IF_ERROR(write_at(offset, bytes));
    uint64_t& known = early_[offset];
    known = std::max(known, end);
    return {};
  }
  use(bytes.subspan(size_t(hashed_ - offset)));
  hashed_ = end;
  DW_RETURN_IF_ERROR(hash_early_pieces());
  // Damage has to wait for the digest, which says whose it is. A full disk does not.
  const bool passing = followed_.code() == Code::kIo || followed_.code() == Code::kOutOfMemory;
  return passing ? followed_ : Status();
}

Status FetchSink::hash_early_pieces() {
  while (!early_.empty() && early_.begin()->first <= hashed_) {
    const uint64_t end = std::max(hashed_, early_.begin()->second);
    DW_RETURN_IF_ERROR(read_file(hashed_, end, [this](Bytes bytes) { use(bytes); }));
    hashed_ = end;
    early_.erase(early_.begin());
  }
  return {};
}

Status FetchSink::read_file(uint64_t begin, uint64_t end,
                            const std::function<void(Bytes)>& take) const {
  if (begin == end) return {};
  std::vector<uint8_t> buffer(size_t(std::min<uint64_t>(kReadBytes, end - begin)));
  while (begin < end) {
    const size_t wanted = size_t(std::min<uint64_t>(buffer.size(), end - begin));
    const ssize_t n = ::pread(fd_, buffer.data(), wanted, off_t(begin));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return errno_status(path_, "cannot read", n < 0 ? errno : EIO);
    take({buffer.data(), size_t(n)});
    begin += uint64_t(n);
  }
  return {};
}

Result<Digest> FetchSink::finish() {
  const std::lock_guard lock(mutex_);
  if (!twice_ && hashed_ == size_bytes_) return hasher_.finish();
  if (follower_ != nullptr) return corruption(path_.string() + ": bytes are missing");
  Hasher whole(DigestKind::kSha256);
  DW_RETURN_IF_ERROR(read_file(0, size_bytes_, [&](Bytes bytes) { whole.update(bytes); }));
  return whole.finish();
}

Status FetchSink::followed() {
  if (follower_ == nullptr || !followed_.ok()) return followed_;
  return follower_->finish();
}

}  // namespace deltawire
