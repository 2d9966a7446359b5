// A store in an S3 bucket: AWS, Ceph, MinIO, Swift, or anything that speaks their protocol.
#pragma once

#include <memory>
#include <string>

#include "deltawire/store.h"

namespace deltawire {

// Objects are BUCKET/PREFIX/NAME (BUCKET/NAME when `prefix` is empty). Sends no request yet. Fails
// on invalid options and without credentials (store/s3/credentials.h).
//
// - Uploads over `multipart_bytes` go in pieces, `connections` at once; downloads too, also smaller
//   ones. Bodies stream: nothing larger than a buffer of libcurl is held.
// - Every request carries the sha-256 of its body, which the server checks. An object put in one
//   request keeps it as metadata, which get() checks.
// - Every request has a deadline, call_timeout_seconds and as much again for each 64 MiB that it,
//   and the connections which may share the link with it, move; and one that moves no byte for
//   call_timeout_seconds ends too. A piece of a larger transfer that fails for the moment is sent
//   or asked for again by itself, a few times; all other retries are a decorator's.
// - A Body or a Sink may call small requests of the same store, but not its transfers.
Result<std::shared_ptr<Store>> open_s3_store(const std::string& bucket, const std::string& prefix,
                                             const StoreOptions& options);

}  // namespace deltawire
