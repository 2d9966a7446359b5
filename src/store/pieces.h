// How one object is moved by several connections at once.
#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "deltawire/status.h"
#include "http/http_client.h"
#include "store/retrying_store.h"

namespace deltawire {

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

// One GET of an object with more headers. `send`: any answer is a value; its body goes to
// `on_bytes`. `failure`: what an answer that is not a 2xx means.
struct RangeSource {
  using Headers = std::vector<std::pair<std::string, std::string>>;
  using OnBytes = std::function<Status(const HttpAnswer& head, std::span<const uint8_t> bytes)>;
  std::function<Result<HttpAnswer>(Headers headers, uint64_t length, OnBytes on_bytes,
                                   const std::atomic<bool>* cancelled)>
      send;
  std::function<Status(const HttpAnswer&)> failure;
  bool quotes_etag = true;  // of If-Match, as HTTP says; Ceph compares what is between the quotes
};

constexpr uint64_t kAnySize = ~uint64_t{0};
// Small enough that a part of a megabyte comes over several connections: each of them begins
// slowly.
constexpr uint64_t kMinDownloadPiece = uint64_t{512} << 10;

// Bytes [offset, offset + pieces.size) of an object into `sink`, at positions from 0. Corruption
// when the object ends before, or when its size is not `object_size` (kAnySize: any). All pieces
// are of the same object: one that is replaced meanwhile is noticed by its ETag, and Unavailable.
Status download_in_pieces(const RangeSource& source, Slots* slots, uint64_t offset,
                          const Pieces& pieces, uint64_t object_size, unsigned workers,
                          const PieceRetries& retries, Sink* sink);

// Fills a span, for Store::read().
class SpanSink final : public Sink {
 public:
  explicit SpanSink(std::span<uint8_t> out) : out_(out) {}
  Status write(uint64_t offset, std::span<const uint8_t> bytes) override;

 private:
  const std::span<uint8_t> out_;
};

// Of an answer's header; Corruption without one.
Result<uint64_t> content_length(const HttpAnswer& answer);
// The body of an answer, for Store::get(); Corruption when it is larger than `max_bytes`.
RangeSource::OnBytes take_text(uint64_t max_bytes, std::string* text);

}  // namespace deltawire
