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

  // Enough pieces for all `connections`. Only the last may be below `min_piece`; none is above
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

// Limits the number of pieces in flight over all transfers of a store. Small requests take no slot,
// so a commit or a poll never waits for bulk data.
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

// Retries of a single piece, so that a temporary failure does not waste the other pieces of a large
// object. Few attempts with short pauses: lasting failures are left to the retries of the whole
// transfer.
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

// Calls move(index, &cancelled) for each piece from up to `workers` threads, including the
// caller's. If there are several pieces, one that is Unavailable is retried. The first final
// failure is returned; it sets `cancelled`, which ends the other pieces early. All threads have
// ended on return.
Status move_pieces(
    const Pieces& pieces, unsigned workers, const PieceRetries& retries,
    const std::function<Status(uint64_t index, const std::atomic<bool>* cancelled)>& move);

// One GET of an object with additional headers. `send` returns an answer of any status and passes
// its body to `on_bytes`. `failure` converts an answer other than 2xx to a Status.
struct RangeSource {
  using Headers = std::vector<std::pair<std::string, std::string>>;
  using OnBytes = std::function<Status(const HttpAnswer& head, std::span<const uint8_t> bytes)>;
  std::function<Result<HttpAnswer>(Headers headers, uint64_t length, OnBytes on_bytes,
                                   const std::atomic<bool>* cancelled)>
      send;
  std::function<Status(const HttpAnswer&)> failure;
  bool quotes_etag = true;  // in If-Match, as HTTP requires; Ceph compares without quotes
};

constexpr uint64_t kAnySize = ~uint64_t{0};
// Small enough that a part of one megabyte uses several connections, since each starts slowly.
constexpr uint64_t kMinDownloadPiece = uint64_t{512} << 10;

// Downloads bytes [offset, offset + pieces.size) of an object into `sink`, at positions from 0.
// Corruption if the object ends earlier or its size is not `object_size` (kAnySize: any).
// Unavailable if its ETag shows that it was replaced meanwhile.
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

// The Content-Length of an answer; Corruption without one.
Result<uint64_t> content_length(const HttpAnswer& answer);
// Collects the body of an answer for Store::get(); Corruption if it exceeds `max_bytes`.
RangeSource::OnBytes take_text(uint64_t max_bytes, std::string* text);

}  // namespace deltawire
