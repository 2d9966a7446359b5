// S3's multipart upload: objects that go up in pieces, by several connections at once.
#pragma once

#include <string>

#include "store/pieces.h"
#include "store/s3/client.h"

namespace deltawire::s3 {

// The object appears whole when every piece is in, or not at all. Pieces stream from `body` and are
// each checked by the server against their sha-256. On a failure the upload is aborted after the
// last piece has ended, so that no piece stays behind unseen; except when the answer to the final
// request was lost: then the object may be there, and aborting could race with its completion.
Status upload_in_pieces(Client* client, Slots* slots, const std::string& key, const Body& body,
                        const Pieces& pieces, unsigned workers, const PieceRetries& retries);

// Limits of the protocol.
constexpr uint64_t kMinUploadPiece = uint64_t{5} << 20;
constexpr uint64_t kMaxUploadPieces = 10000;

}  // namespace deltawire::s3
