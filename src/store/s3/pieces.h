// How one object is moved by several connections at once.
#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>

#include "deltawire/status.h"
#include "store/retrying_store.h"

namespace deltawire::s3 {

// [0, size) cut into pieces of one size, the last one shorter.
struct Pieces {
  uint64_t size = 0, piece_size = 1;

  // Enough pieces to keep `connections` busy, none (but the last) below `min_piece`, none above
  // `max_piece` unless there would be more than `max_count`.
  static Pieces cut(uint64_t size, unsigned connections, uint64_t min_piece, uint64_t max_piece,
                    uint64_t max_count);

  uint64_t count() const { return size / piece_size + (size % piece_size != 0); }
  uint64_t offset(uint64_t index) const { return index * piece_size; }
  uint64_t length(uint64_t index) const {
    const uint64_t left = size - offset(index);
    return left < piece_size ? left : piece_size;
  }
};

// Limits how many pieces are on the way at once, over all transfers of a store. Small requests take
// none: a commit or a poll never waits behind bulk data.
class Slots {
 public:
  explicit Slots(unsigned count) : free_(count) {}

  class Slot {
   public:
    explicit Slot(Slots* slots) : slots_(slots) { slots_->take(); }
    ~Slot() { slots_->give_back(); }
    Slot(const Slot&) = delete;
    Slot& operator=(const Slot&) = delete;

   private:
    Slots* const slots_;
  };

 private:
  void take();
  void give_back();

  std::mutex mutex_;
  std::condition_variable changed_;
  unsigned free_;
};

// How a piece that failed is tried again by itself, so that passing trouble does not cost a large
// object all its other pieces. Few times and with short pauses: trouble that lasts is for whoever
// retries the whole transfer.
struct PieceRetries {
  RetryPolicy policy;
  StoreClock clock = real_clock();
  std::function<void()> before_retry = [] {};

  static PieceRetries at_most(unsigned retries) {
    constexpr unsigned kMost = 3;
    PieceRetries made;
    made.policy.retries = std::min(retries, kMost);
    return made;
  }
};

// Calls move(index, &cancelled) for each piece from up to `workers` threads, the caller's among
// them, and once more for one that was Unavailable, if there are others. The first failure that
// stays is returned; it sets `cancelled`, which ends the others early, and all have ended when this
// returns.
Status move_pieces(
    const Pieces& pieces, unsigned workers, const PieceRetries& retries,
    const std::function<Status(uint64_t index, const std::atomic<bool>* cancelled)>& move);

}  // namespace deltawire::s3
