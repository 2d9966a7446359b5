// Listings of a bucket, what its server can do, and multipart uploads.
#pragma once

#include <string>
#include <vector>

#include "store/pieces.h"
#include "store/s3/client.h"

namespace deltawire::s3 {

// ListObjectsV2. Up to `limit` (at most 1000) objects whose key begins with `store_prefix` +
// `prefix` and sorts after `store_prefix` + `start_after`. Names are without `store_prefix`; keys
// that are not names of objects, which others may have left there, are passed over. Corruption when
// the server's list is of something else or out of order.
Result<std::vector<ObjectInfo>> list_objects(Client* client, const std::string& store_prefix,
                                             std::string_view prefix, std::string_view start_after,
                                             size_t limit);

// Whether the server honours "put only if absent": puts an object of a random name under `prefix`
// twice with If-None-Match and removes it. False when the second put succeeds (the header is
// overlooked) or the first is refused as unknown. The name begins with a dot, so that no listing of
// the store shows it.
Result<bool> has_conditional_put(Client* client, const std::string& prefix);

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
