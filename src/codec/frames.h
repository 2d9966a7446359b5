// An array cut into chunks of 4 MiB, each chunk's changes in a zstd frame of its own: threads work
// on frames at once, and memory stays at one chunk per thread. `xor-zstd` and `overwrite-zstd`
// differ only in what a frame holds.
//
//   payload = one length:leb128 per chunk of the array (0: nothing changed there) | the frames
//
// Empty when nothing changed at all.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "codec/codec.h"

namespace deltawire {

// On disk: borders of chunks are part of the format. A multiple of every width.
inline constexpr size_t kFrameArrayBytes = size_t{4} << 20;

constexpr size_t num_frame_chunks(uint64_t array_bytes) noexcept {
  return size_t((array_bytes + kFrameArrayBytes - 1) / kFrameArrayBytes);
}

// Replaces *content with what the frame of this chunk holds and returns how many elements changed;
// when none did, the content is not looked at.
using MakeContent =
    std::function<uint64_t(Bytes old_chunk, Bytes new_chunk, std::vector<uint8_t>* content)>;

Result<Encoded> encode_frames(Bytes old_bytes, Bytes new_bytes, ThreadPool* pool,
                              const MakeContent& make);

// Says whether a frame of `content_bytes` can belong to a chunk of `chunk_bytes`. This bounds what
// is allocated.
using CheckContentSize = std::function<Status(size_t chunk_bytes, uint64_t content_bytes)>;
// Gets the content of the frame of chunk `index`, which starts at byte `offset` of the array.
using UseContent =
    std::function<Status(size_t index, size_t offset, size_t chunk_bytes, Bytes content)>;

// Checks the directory and every frame's header before the first frame is decompressed.
Status decode_frames(Bytes payload, size_t array_bytes, ThreadPool* pool,
                     const CheckContentSize& check, const UseContent& use);

}  // namespace deltawire
