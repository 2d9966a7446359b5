#include "transfer/tee.h"

#include <algorithm>

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
  const auto has_room = [&] {
    return std::all_of(taken_.begin(), taken_.begin() + long(threads_.size()),
                       [&](uint64_t taken) { return taken + kChunks > filled_; });
  };
  changed_.wait(lock, has_room);
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

}  // namespace deltawire
