// Does the server honour "put only if absent"?
#pragma once

#include "store/s3/client.h"

namespace deltawire::s3 {

// Asks by doing it: puts an object of a random name under `prefix` twice with If-None-Match and
// removes it. False when the second put succeeds (the header is overlooked) or the first is refused
// as unknown. The name begins with a dot, so that no listing of the store shows it.
Result<bool> has_conditional_put(Client* client, const std::string& prefix);

}  // namespace deltawire::s3
