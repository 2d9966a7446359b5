// Memory and streams that a codec keeps from call to call: to allocate them takes longer than to
// use them.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <memory>
#include <span>
#include <vector>

#include "kernels/cuda/memory.h"

namespace deltawire::cuda {

struct CheckedTight;

class Workspace {
 public:
  // What a piece is for. Each grows as needed; what it held is lost then, and at the next call.
  enum Use : uint8_t {
    kModels,
    kTables,
    kSlots,
    kCounts,
    kStatus,
    kHostCounts,
    kHostTables,
    kHostResults,
    kHostBytes,
    kNumUses
  };

  // At least `num_bytes` of device memory, or of pinned memory for the kHost ones.
  Result<uint8_t*> get(Use use, size_t num_bytes) {
    if (use == kSlots && num_bytes <= borrowed_.size()) return borrowed_.data();
    Buffer& buffer = buffers_[use];
    if (buffer.size() < num_bytes) {
      const Place place = use >= kHostCounts ? Place::kPinned : Place::kDevice;
      // To allocate makes every stream wait: small pieces grow in few steps. Slots and large
      // ones are of the scratch, which is a promise.
      const bool in_steps = place == Place::kPinned || (use != kSlots && num_bytes < kSmall);
      buffer = Buffer();  // first, so that both need not fit
      DW_ASSIGN_OR_RETURN(buffer,
                          Buffer::allocate(place, in_steps ? std::bit_ceil(num_bytes) : num_bytes));
    }
    return buffer.data();
  }

  // kSlots is this memory of somebody else's, as long as it is enough. Aligned to 256 bytes.
  void borrow(std::span<uint8_t> memory) noexcept { borrowed_ = memory; }

  // Gives back what is larger than `num_bytes`.
  void limit(Use use, size_t num_bytes) {
    if (buffers_[use].size() > num_bytes) buffers_[use] = Buffer();
  }
  size_t device_bytes() const noexcept {
    size_t sum = 0;
    for (size_t use = 0; use < kHostCounts; ++use) sum += buffers_[use].size();
    return sum;
  }
  // All but the slots.
  size_t table_bytes() const noexcept { return device_bytes() - buffers_[kSlots].size(); }

  // Pinned memory that comes in pieces, as many as are asked for. What piece i held is lost when it
  // grows.
  Result<uint8_t*> host_piece(size_t i, size_t num_bytes) {
    if (host_pieces_.size() <= i) host_pieces_.resize(i + 1);
    Buffer& piece = host_pieces_[i];
    if (piece.size() < num_bytes) {
      piece = Buffer();
      DW_ASSIGN_OR_RETURN(piece, Buffer::allocate(Place::kPinned, std::bit_ceil(num_bytes)));
    }
    return piece.data();
  }

  // Pinned memory that somebody keeps for a while. Given back, it is used again.
  Result<Buffer> take_pinned(size_t num_bytes) {
    const auto found = std::find_if(spare_.begin(), spare_.end(), [&](const Buffer& buffer) {
      return buffer.size() >= num_bytes;
    });
    if (found == spare_.end()) {
      // What was too small is not going to be enough.
      if (!spare_.empty()) spare_.erase(spare_.begin());
      return Buffer::allocate(Place::kPinned, std::bit_ceil(num_bytes));
    }
    Buffer taken = std::move(*found);
    spare_.erase(found);
    return taken;
  }
  void give_back_pinned(Buffer buffer) {
    if (buffer.size() == 0) return;
    const auto at = std::find_if(spare_.begin(), spare_.end(), [&](const Buffer& other) {
      return other.size() >= buffer.size();
    });
    spare_.insert(at, std::move(buffer));
  }

  // Device memory beside the scratch, for what is decoded before it may be written; of elements of
  // one width. What it held is lost at the next call for that width.
  Result<uint8_t*> keep(unsigned width, size_t num_bytes) {
    Buffer& buffer = kept_[std::countr_zero(width)];
    if (buffer.size() < num_bytes) {
      buffer = Buffer();  // first, so that both need not fit
      DW_ASSIGN_OR_RETURN(buffer, Buffer::allocate(Place::kDevice, num_bytes));
    }
    return buffer.data();
  }
  void stop_keeping(unsigned width) { kept_[std::countr_zero(width)] = Buffer(); }
  size_t kept_bytes() const noexcept {
    size_t sum = 0;
    for (const Buffer& buffer : kept_) sum += buffer.size();
    return sum;
  }
  size_t kept_bytes(unsigned width) const noexcept { return kept_[std::countr_zero(width)].size(); }

  // What a check of `tight` has left for an apply, by the width of its elements.
  std::shared_ptr<CheckedTight>& checked_tight(unsigned width) {
    return checked_[std::countr_zero(width)];
  }

  // Codecs work on the first kCodecStreams. The others are for what goes on beside that; those from
  // kChains on, as many, are urgent.
  static constexpr size_t kCodecStreams = 4;
  enum StreamUse : uint8_t { kSmallArrays = kCodecStreams, kChains };
  Result<Stream> stream(size_t i) {
    while (streams_.size() <= i) {
      const Urgency urgency = streams_.size() < kChains ? Urgency::kPlain : Urgency::kUrgent;
      DW_ASSIGN_OR_RETURN(OwnedStream made, OwnedStream::create(urgency));
      streams_.push_back(std::move(made));
    }
    return streams_[i].get();
  }

  // After a failure: what is still under way uses memory that the next call takes.
  void settle(Stream stream) const {
    (void)wait(stream);
    for (const OwnedStream& own : streams_) (void)wait(own.get());
  }

 private:
  static constexpr size_t kSmall = size_t{4} << 20;

  std::array<Buffer, kNumUses> buffers_;
  std::vector<Buffer> host_pieces_;
  std::vector<Buffer> spare_;  // the smallest first
  std::array<std::shared_ptr<CheckedTight>, 4> checked_;
  std::array<Buffer, 4> kept_;
  std::span<uint8_t> borrowed_;
  std::vector<OwnedStream> streams_;
};

}  // namespace deltawire::cuda
