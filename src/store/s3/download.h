// A range of an object, read by several connections at once.
#pragma once

#include "store/s3/client.h"
#include "store/s3/pieces.h"

namespace deltawire::s3 {

// Bytes [offset, offset + pieces.size) of an object into `sink`, at positions from 0. Corruption
// when the object ends before, or when its size is not `object_size` (kAnySize: any). All pieces
// are of the same object: one that is replaced meanwhile is noticed by its ETag, and Unavailable.
Status download_in_pieces(Client* client, Slots* slots, const std::string& key, uint64_t offset,
                          const Pieces& pieces, uint64_t object_size, unsigned workers,
                          const PieceRetries& retries, Sink* sink);

constexpr uint64_t kAnySize = ~uint64_t{0};
// Small enough that a part of a megabyte comes over several connections: each of them begins
// slowly.
constexpr uint64_t kMinDownloadPiece = uint64_t{512} << 10;

}  // namespace deltawire::s3
