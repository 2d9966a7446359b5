// Objects moved in pieces by several connections at once: S3's multipart upload, ranged downloads.
#pragma once

#include "store/s3/client.h"
#include "store/s3/pieces.h"

namespace deltawire::s3 {

// The object appears whole when every piece is in, or not at all. Pieces stream from `body` and are
// each checked by the server against their sha-256. On a failure the upload is aborted after the
// last piece has ended, so that no piece stays behind unseen; except when the answer to the final
// request was lost: then the object may be there, and aborting could race with its completion.
Status upload_in_pieces(Client* client, Slots* slots, const std::string& key, const Body& body,
                        const Pieces& pieces, unsigned workers, const PieceRetries& retries);

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
// Limits of the protocol.
constexpr uint64_t kMinUploadPiece = uint64_t{5} << 20;
constexpr uint64_t kMaxUploadPieces = 10000;

}  // namespace deltawire::s3
