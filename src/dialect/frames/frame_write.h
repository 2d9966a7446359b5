// The other direction of frame_patch.h: the changes of a whole array as one zstd frame, and the
// checksum of the new bytes beside it.
#pragma once

#include <cstdint>
#include <vector>

#include "base/bytes.h"
#include "base/thread_pool.h"
#include "deltawire/status.h"
#include "dialect/checksum.h"

namespace deltawire {

struct ChangeFrame {
  std::vector<uint8_t> frame;  // states its content's size, has no checksum
  Checksum checksum;           // of `new_bytes`
};

// Both arrays have one size. The same bytes on any number of threads. Small arrays give the very
// frame that zstd's level 1 makes of them. OutOfMemory.
Result<ChangeFrame> write_xor_frame(Bytes old_bytes, Bytes new_bytes, ChecksumKind checksum,
                                    ThreadPool* pool);
// InvalidArgument for arrays of over max_overwrite_bytes(): positions have 32 bits.
Result<ChangeFrame> write_overwrite_frame(Bytes old_bytes, Bytes new_bytes, ChecksumKind checksum,
                                          ThreadPool* pool);
constexpr uint64_t max_overwrite_bytes() noexcept { return 0xffffffff; }

}  // namespace deltawire
