// Stores at http:// and https://: what `deltawire serve` serves, also through caches and relays.
#pragma once

#include <memory>
#include <string>

#include "deltawire/store.h"

namespace deltawire {

// What client and server agree upon (docs/transports.md).
inline constexpr char kObjectsPath[] = "/objects";
inline constexpr char kNewsPath[] = "/news";
// The server sets this header in every answer, so a 404 from another server is not taken for a
// missing object.
inline constexpr char kStoreHeader[] = "deltawire-store";
inline constexpr double kMaxNewsSeconds = 60;

// `urls`: http://HOST:PORT/PREFIX, or several separated by commas that serve the same chain; they
// are tried in random order. Objects can be read; only heartbeats can be put. Follow watches wake
// as soon as the server has a new version. StoreOptions::token_file: the bearer token.
Result<std::shared_ptr<Store>> open_http_store(const std::string& urls,
                                               const StoreOptions& options);

}  // namespace deltawire
