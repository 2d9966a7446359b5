// What is asked of a bucket as a whole.
#pragma once

#include <vector>

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

}  // namespace deltawire::s3
