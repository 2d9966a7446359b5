// ListObjectsV2, page by page, checked.
#pragma once

#include <vector>

#include "store/s3/client.h"

namespace deltawire::s3 {

// Up to `limit` (at most 1000) objects whose key begins with `store_prefix` + `prefix` and sorts
// after `store_prefix` + `start_after`. Names are without `store_prefix`; keys that are not names
// of objects, which others may have left there, are passed over. Corruption when the server's list
// is of something else or out of order.
Result<std::vector<ObjectInfo>> list_objects(Client* client, const std::string& store_prefix,
                                             std::string_view prefix, std::string_view start_after,
                                             size_t limit);

}  // namespace deltawire::s3
