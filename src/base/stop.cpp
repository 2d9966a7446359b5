#include "base/stop.h"

#include <atomic>

namespace deltawire {
namespace {

std::atomic<bool (*)()> asked_by_program{nullptr};

}  // namespace

void set_stop_request(bool (*asked)()) noexcept { asked_by_program = asked; }

bool stop_can_be_requested() noexcept { return asked_by_program.load() != nullptr; }

bool stop_requested() noexcept {
  bool (*const asked)() = asked_by_program.load();
  return asked != nullptr && asked();
}

}  // namespace deltawire
