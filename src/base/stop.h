// The program's request to stop (Ctrl-C, SIGTERM), checked by code that waits.
#pragma once

namespace deltawire {

// `asked` may be called from any thread at any time. Null, the default: there is never a request.
void set_stop_request(bool (*asked)()) noexcept;
bool stop_requested() noexcept;

bool stop_can_be_requested() noexcept;

// Waits by calling `sleep(seconds)`. False: a stop was requested before the time was over.
template <class Sleep>
bool sleep_unless_stopped(double seconds, const Sleep& sleep) {
  constexpr double kLook = 0.05;
  if (!stop_can_be_requested()) {
    sleep(seconds);
    return true;
  }
  for (; seconds > 0 && !stop_requested(); seconds -= kLook) {
    sleep(seconds < kLook ? seconds : kLook);
  }
  return !stop_requested();
}

}  // namespace deltawire
