// What time it is.
#pragma once

#include <chrono>
#include <cstdint>

namespace deltawire {

// Since 1970, as others count too.
inline int64_t unix_seconds() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::seconds>(now).count();
}

// Never goes back; good for differences alone.
inline double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace deltawire
