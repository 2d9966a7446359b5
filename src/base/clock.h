// The current time, and the text forms of times.
#pragma once

#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <ctime>
#include <string>
#include <thread>

namespace deltawire {

// Seconds since 1970 by the system's clock. A clock before 1970 is wrong and counts as 0.
inline double unix_seconds_now() {  // with milliseconds
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::max(
      0.0, double(std::chrono::duration_cast<std::chrono::milliseconds>(now).count()) / 1000);
}
inline int64_t unix_seconds() { return int64_t(unix_seconds_now()); }

inline constexpr char kUtcFormat[] = "%Y-%m-%dT%H:%M:%SZ";  // in records

// "2026-11-15T05:36:24Z", or in another format of strftime; "-" where no calendar has this time.
inline std::string utc_text(int64_t seconds, const char* format = kUtcFormat) {
  const std::time_t time = seconds;
  std::tm parts{};
  char text[80];
  if (::gmtime_r(&time, &parts) == nullptr) return "-";
  return {text, std::strftime(text, sizeof text, format, &parts)};
}
inline std::string utc_now() { return utc_text(unix_seconds()); }

// The reverse; 0 for any other text.
inline int64_t parse_utc(const std::string& text) {
  std::tm parts{};
  return ::strptime(text.c_str(), kUtcFormat, &parts) == nullptr ? 0 : int64_t(::timegm(&parts));
}

// Never goes back; for differences only.
inline double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Sleeps, calling `stop` about 20 times a second. False: it returned true.
template <class Stop>
bool sleep_unless(double seconds, const Stop& stop) {
  for (const double end = steady_seconds() + seconds;;) {
    if (stop()) return false;
    const double left = end - steady_seconds();
    if (left <= 0) return true;
    std::this_thread::sleep_for(std::chrono::duration<double>(std::min(left, 0.05)));
  }
}

}  // namespace deltawire
