// What time it is.
#pragma once

#include <time.h>

#include <chrono>
#include <cstdint>
#include <string>

namespace deltawire {

// Since 1970, as others count too.
inline int64_t unix_seconds() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::seconds>(now).count();
}

// "2026-11-15T05:36:24Z", as records have it, in seconds since 1970; 0 for another text.
inline int64_t parse_utc(const std::string& text) {
  std::tm parts{};
  const char* end = ::strptime(text.c_str(), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return end == nullptr ? 0 : int64_t(::timegm(&parts));
}

// Never goes back; good for differences alone.
inline double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace deltawire
