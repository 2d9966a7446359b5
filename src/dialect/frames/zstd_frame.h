// Single zstd frames.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/bytes.h"
#include "deltawire/status.h"

namespace deltawire {

// Appends `content` as one level-1 frame that states its size and has no checksum.
Status append_zstd_frame(Bytes content, std::vector<uint8_t>* out);

// One zstd frame of any length, decompressed block by block: its content passes through a window
// that stays in the cache, and is never in memory as a whole.

// Holds zstd's working memory and a window; one per worker.
class ZstdStream {
 public:
  // Corruption unless `frame` begins with an ordinary frame (no legacy version, no skippable one,
  // no dictionary) whose content, where it states its size, has at most `max_bytes`. What is
  // allocated is bounded by that, too. `frame` must outlive the reading.
  Status begin(Bytes frame, uint64_t max_bytes);
  // The content size that the frame states, if it does.
  std::optional<uint64_t> content_bytes() const noexcept { return content_bytes_; }
  // The next piece of the content, at most 128 KiB, good until the next call; empty at the end.
  // Corruption when the frame is damaged, holds more than `max_bytes`, or bytes follow it.
  Result<Bytes> next();

 private:
  struct Free {
    void operator()(void* context) const noexcept;
  };
  Status start(uint64_t window_bytes, size_t block_bytes);

  std::unique_ptr<void, Free> context_;
  std::unique_ptr<uint8_t[]> window_;
  size_t capacity_ = 0;  // of window_
  size_t in_use_ = 0;    // of it, for this frame
  size_t end_ = 0;       // of what was decompressed last
  size_t block_bytes_ = 0;
  Bytes rest_;
  uint64_t left_ = 0;  // of max_bytes
  std::optional<uint64_t> content_bytes_;
};

}  // namespace deltawire
