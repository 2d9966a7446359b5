// The calling end of a handshake.
#pragma once

#include <string>
#include <string_view>

#include "carrier/net/handshake.h"
#include "carrier/net/socket.h"

namespace deltawire {

struct Called {
  Socket socket;
  Handshake handshake;  // done
};

// Tries again until somebody answers or the time is over. InvalidArgument at once where the secrets
// differ. `place` is for messages.
Result<Called> call_until(const std::string& address, const Secret& secret,
                          std::string_view purpose, uint64_t caller, const Deadline& deadline,
                          std::string_view place);

}  // namespace deltawire
