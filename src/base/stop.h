// Whether everything is to end: said by the program (Ctrl-C, SIGTERM), heard by what waits for
// others.
#pragma once

namespace deltawire {

// `asked` may be called from any thread at any time. Null, the default: it never is to end.
void set_stop_request(bool (*asked)()) noexcept;
bool stop_requested() noexcept;

bool stop_can_be_requested() noexcept;

// Waits by `sleep(seconds)`. False: everything is to end, and it did not wait to the end.
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
