// Changes of a whole array in one zstd frame, as slime writes them: patched into the array and
// checksummed in one pass, while the bytes are in the cache.
//
//   xor        content = new ^ old, as long as the array
//   overwrite  content = count:u32le | count x byte position:u32le, ascending | count x byte
//
// Payloads are untrusted: a bad one is Corruption, which leaves the array undefined.
#pragma once

#include <cstdint>
#include <vector>

#include "base/bytes.h"
#include "base/thread_pool.h"
#include "deltawire/status.h"
#include "dialect/checksum.h"
#include "dialect/frames/zstd_frame.h"

namespace deltawire {

// `checksummer` gets all new bytes of `data`, in order; may be null.
Status patch_xor_frame(Bytes frame, MutableBytes data, ZstdStream* zstd, Checksummer* checksummer);
// Memory is five bytes for each changed byte; the frame must state its content's size.
Status patch_overwrite_frame(Bytes frame, MutableBytes data, ZstdStream* zstd,
                             Checksummer* checksummer);

// The other direction of frames.h: the changes of a whole array as one zstd frame, and the
// checksum of the new bytes beside it.
struct ChangeFrame {
  std::vector<uint8_t> frame;  // states its content's size, has no checksum
  Checksum checksum;           // of `new_bytes`
};

// Both arrays have one size. Frames are those of zstd's level 1. OutOfMemory.
Result<ChangeFrame> write_xor_frame(Bytes old_bytes, Bytes new_bytes, ChecksumKind checksum,
                                    ThreadPool* pool);
// InvalidArgument for arrays of over max_overwrite_bytes(): positions have 32 bits.
Result<ChangeFrame> write_overwrite_frame(Bytes old_bytes, Bytes new_bytes, ChecksumKind checksum,
                                          ThreadPool* pool);
constexpr uint64_t max_overwrite_bytes() noexcept { return 0xffffffff; }

}  // namespace deltawire
