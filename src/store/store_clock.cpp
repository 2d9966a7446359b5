#include "store/store_clock.h"

#include <chrono>
#include <thread>

namespace deltawire {

StoreClock real_clock() {
  return {[] {
            const auto now = std::chrono::steady_clock::now().time_since_epoch();
            return std::chrono::duration<double>(now).count();
          },
          [](double seconds) {
            if (seconds > 0) std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
          }};
}

}  // namespace deltawire
