#include "transfer/fetch_sink.h"

#include <fcntl.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "base/file.h"
#include "base/guard.h"
#include "base/thread_pool.h"

namespace deltawire {

Tee::Tee(std::vector<Take> takers, bool threaded)
    : takers_(std::move(takers)), taken_(takers_.size()) {
  if (!threaded) return;
  start_threads(
      takers_.size(), [this](size_t taker) { work(taker); }, &threads_);
}

Tee::~Tee() {
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void Tee::write(Bytes bytes) {
  for (size_t taker = threads_.size(); taker < takers_.size(); ++taker) takers_[taker](bytes);
  if (threads_.empty()) return;
  while (!bytes.empty()) {
    std::vector<uint8_t>& chunk = chunks_[filled_ % kChunks];
    if (chunk.empty()) chunk.reserve(kChunkBytes);
    const size_t size = std::min(kChunkBytes - chunk.size(), bytes.size());
    chunk.insert(chunk.end(), bytes.begin(), bytes.begin() + long(size));
    bytes = bytes.subspan(size);
    if (chunk.size() == kChunkBytes) pass_on();
  }
}

void Tee::pass_on() {
  std::unique_lock lock(mutex_);
  ++filled_;
  changed_.notify_all();
  const auto has_space = [&] {
    return std::all_of(taken_.begin(), taken_.begin() + long(threads_.size()),
                       [&](uint64_t taken) { return taken + kChunks > filled_; });
  };
  changed_.wait(lock, has_space);
  chunks_[filled_ % kChunks].clear();
}

void Tee::drain() {
  if (threads_.empty()) return;
  if (!chunks_[filled_ % kChunks].empty()) pass_on();
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] {
    return std::all_of(taken_.begin(), taken_.begin() + long(threads_.size()),
                       [&](uint64_t taken) { return taken == filled_; });
  });
}

void Tee::work(size_t taker) {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return closed_ || taken_[taker] < filled_; });
    if (closed_) return;
    const Bytes chunk = chunks_[taken_[taker] % kChunks];
    lock.unlock();
    takers_[taker](chunk);
    lock.lock();
    ++taken_[taker];
    changed_.notify_all();
  }
}

namespace {

constexpr size_t kReadBytes = size_t{1} << 20;
// Objects of at least this size are hashed and followed by threads of their own.
constexpr uint64_t kThreadedBytes = uint64_t{4} << 20;

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
  if (follower == nullptr) DW_RETURN_IF_ERROR(take_space(sink->fd_, 0, size_bytes, path));
  FetchSink* const own = sink.get();
  std::vector<Tee::Take> takers = {[own](Bytes bytes) { own->hasher_.update(bytes); }};
  if (follower != nullptr) takers.push_back([own](Bytes bytes) { own->follow_on(bytes); });
  sink->follower_ = follower;
  sink->tee_.emplace(std::move(takers), size_bytes >= kThreadedBytes);
  return sink;
}

FetchSink::~FetchSink() {
  if (fd_ >= 0) ::close(fd_);
}

Status FetchSink::write_at(uint64_t offset, Bytes bytes) {
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
  return guard_memory("fetching", [&]() -> Status {
    return follower_ != nullptr ? follow(offset, bytes) : keep(offset, bytes);
  });
}

Status FetchSink::keep(uint64_t offset, Bytes bytes) {
  DW_RETURN_IF_ERROR(write_at(offset, bytes));
  received_->fetch_add(bytes.size());
  const uint64_t end = offset + bytes.size();
  const std::lock_guard lock(mutex_);
  if (twice_) return {};
  const auto next = early_.lower_bound(offset);
  if (offset < used_ || (next != early_.end() && next->first < end) ||
      (next != early_.begin() && std::prev(next)->second > offset)) {
    twice_ = true;
    return {};
  }
  if (offset > used_) {
    early_.emplace(offset, end);
    return {};
  }
  tee_->write(bytes);
  used_ = end;
  return use_early_pieces();
}

void FetchSink::follow_on(Bytes bytes) {
  if (!follower_status().ok()) return;
  Status status = guard_memory("unpacking", [&]() -> Status { return follower_->take(bytes); });
  const std::lock_guard lock(follower_mutex_);
  followed_ = std::move(status);
}

Status FetchSink::follower_status() {
  const std::lock_guard lock(follower_mutex_);
  return followed_;
}

// Bytes that were consumed already are ignored, even if they differ now: the digest decides.
Status FetchSink::follow(uint64_t offset, Bytes bytes) {
  received_->fetch_add(bytes.size());
  const uint64_t end = offset + bytes.size();
  const std::lock_guard lock(mutex_);
  if (end <= used_) return {};
  if (offset > used_) {
    DW_RETURN_IF_ERROR(write_at(offset, bytes));
    uint64_t& known = early_[offset];
    known = std::max(known, end);
    return {};
  }
  tee_->write(bytes.subspan(size_t(used_ - offset)));
  used_ = end;
  DW_RETURN_IF_ERROR(use_early_pieces());
  // A corruption error must wait for the digest, which shows whether the download is damaged. A
  // full disk need not wait.
  Status status = follower_status();
  const bool passing = status.code() == Code::kIo || status.code() == Code::kOutOfMemory;
  return passing ? std::move(status) : Status();
}

Status FetchSink::use_early_pieces() {
  while (!early_.empty() && early_.begin()->first <= used_) {
    const uint64_t end = std::max(used_, early_.begin()->second);
    DW_RETURN_IF_ERROR(read_file(used_, end, [this](Bytes bytes) { tee_->write(bytes); }));
    used_ = end;
    early_.erase(early_.begin());
  }
  return {};
}

Status FetchSink::read_file(uint64_t begin, uint64_t end,
                            const std::function<void(Bytes)>& take) const {
  if (begin == end) return {};
  std::vector<uint8_t> buffer(size_t(std::min<uint64_t>(kReadBytes, end - begin)));
  while (begin < end) {
    const MutableBytes some(buffer.data(), std::min<uint64_t>(buffer.size(), end - begin));
    const ssize_t n = read_at(fd_, begin, some);
    if (n <= 0) return errno_status(path_, "cannot read", n < 0 ? errno : EIO);
    take(some.first(size_t(n)));
    begin += uint64_t(n);
  }
  return {};
}

Result<Digest> FetchSink::finish() {
  const std::lock_guard lock(mutex_);
  tee_->drain();
  if (!twice_ && used_ == size_bytes_) return hasher_.finish();
  if (follower_ != nullptr) return corruption(path_.string() + ": bytes are missing");
  Hasher whole(DigestKind::kSha256);
  DW_RETURN_IF_ERROR(read_file(0, size_bytes_, [&](Bytes bytes) { whole.update(bytes); }));
  return whole.finish();
}

Status FetchSink::followed() {
  const Status status = follower_status();
  if (follower_ == nullptr || !status.ok()) return status;
  return follower_->finish();
}

}  // namespace deltawire
