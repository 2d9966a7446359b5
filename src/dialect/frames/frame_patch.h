// Changes of a whole array in one zstd frame, as slime writes them: patched into the array and
// checksummed in one pass, while the bytes are in the cache.
//
//   xor        content = new ^ old, as long as the array
//   overwrite  content = count:u32le | count x byte position:u32le, ascending | count x byte
//
// Payloads are untrusted: a bad one is Corruption, which leaves the array undefined.
#pragma once

#include "base/bytes.h"
#include "dialect/checksum.h"
#include "dialect/frames/zstd_stream.h"

namespace deltawire {

// `checksummer` gets all new bytes of `data`, in order; null: nobody does.
Status patch_xor_frame(Bytes frame, MutableBytes data, ZstdStream* zstd, Checksummer* checksummer);
// Memory is five bytes for each changed byte; the frame must state its content's size.
Status patch_overwrite_frame(Bytes frame, MutableBytes data, ZstdStream* zstd,
                             Checksummer* checksummer);

}  // namespace deltawire
