#include "transfer/read_ahead.h"

#include <cstring>

#include "base/guard.h"
#include "base/thread_pool.h"
#include "store/bodies.h"

namespace deltawire {

ReadAhead::ReadAhead(const Body& body)
    : body_(body),
      num_pieces_((body.size() + kPieceBytes - 1) / kPieceBytes),
      hasher_(DigestKind::kSha256) {
  if (num_pieces_ <= kPieces) return;
  start_threads(
      2, [this](size_t i) { i == 0 ? fill() : hash(); }, &threads_);
  if (threads_.size() < 2) stop();
}

ReadAhead::~ReadAhead() { stop(); }

void ReadAhead::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

void ReadAhead::fill() {
  for (uint64_t i = 0; i < num_pieces_; ++i) {
    std::unique_lock lock(mutex_);
    changed_.wait(
        lock, [&] { return stopping_ || i < std::min(hashed_, taken_ / kPieceBytes) + kPieces; });
    if (stopping_) return;
    lock.unlock();
    std::vector<uint8_t>& piece = pieces_[i % kPieces];
    Status status = guard_memory("reading ahead", [&]() -> Status {
      piece.resize(size_t(piece_bytes(i)));
      return body_.read(i * kPieceBytes, piece);
    });
    lock.lock();
    failure_ = std::move(status);
    if (failure_.ok()) filled_ = i + 1;
    changed_.notify_all();
    if (!failure_.ok()) return;
  }
}

void ReadAhead::hash() {
  for (uint64_t i = 0; i < num_pieces_; ++i) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return stopping_ || filled_ > i || !failure_.ok(); });
    if (stopping_ || filled_ <= i) return;
    lock.unlock();
    hasher_.update(pieces_[i % kPieces]);
    lock.lock();
    hashed_ = i + 1;
    changed_.notify_all();
  }
}

Status ReadAhead::read(uint64_t offset, MutableBytes out) const {
  std::unique_lock lock(mutex_);
  while (!out.empty() && !threads_.empty() && offset == taken_) {
    const uint64_t piece = offset / kPieceBytes, skip = offset % kPieceBytes;
    changed_.wait(lock, [&] { return filled_ > piece || taken_ != offset || !failure_.ok(); });
    if (taken_ != offset) break;  // two read the same
    if (filled_ <= piece) return failure_;
    const size_t count = size_t(std::min<uint64_t>(piece_bytes(piece) - skip, out.size()));
    std::memcpy(out.data(), pieces_[piece % kPieces].data() + skip, count);
    taken_ = offset += count;
    out = out.subspan(count);
    changed_.notify_all();
  }
  lock.unlock();
  return out.empty() ? Status() : body_.read(offset, out);
}

Result<Digest> ReadAhead::sha256() {
  if (threads_.empty()) return digest_of_body(DigestKind::kSha256, body_);
  std::unique_lock lock(mutex_);
  taken_ = size();  // what was read in another order is hashed now
  changed_.notify_all();
  changed_.wait(lock, [&] { return hashed_ == num_pieces_ || !failure_.ok(); });
  if (!failure_.ok()) return failure_;
  return hasher_.finish();
}

}  // namespace deltawire
