// The difference of two arrays as zstd blocks, without a search for matches: what is not zero is a
// literal, every run of zeros a match with the byte before it. This takes a fraction of the time
// that zstd's own search takes, and blocks of several threads can be joined to one frame.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/bytes.h"
#include "deltawire/status.h"

namespace deltawire {

// What is compressed at once. Not a promise of any format: readers see blocks.
inline constexpr size_t kZeroRunsChunk = size_t{512} << 10;

// Holds zstd's working memory and scratch; one per worker.
class ZeroRuns {
 public:
  ZeroRuns();
  ~ZeroRuns();
  ZeroRuns(ZeroRuns&&) noexcept;
  ZeroRuns& operator=(ZeroRuns&&) = delete;

  // Appends `old ^ new`, at most a chunk, to *out as blocks. They stand alone, so that those of
  // several chunks, one after the other, are a frame's: no match reaches out of its block, and all
  // have the offset 1, so that what zstd remembers of earlier offsets stays what a frame begins
  // with. `last`: the last of these blocks ends the frame.
  Status append_blocks(Bytes old_bytes, Bytes new_bytes, bool last, std::vector<uint8_t>* out);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// What stands before the blocks of a frame of `content_bytes`, which it states.
void append_frame_header(uint64_t content_bytes, std::vector<uint8_t>* out);

}  // namespace deltawire
