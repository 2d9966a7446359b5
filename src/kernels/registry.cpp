// Which kernels run: those that DELTAWIRE_KERNELS names, else the best that this machine has.
#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <span>

#include "kernels/kernels.h"
#include "kernels/targets.h"

namespace deltawire {
namespace {

struct Table {
  std::array<const Kernels*, 8> targets{};
  size_t count = 0;
  Table() {
    for (const Kernels* target : simd_kernels()) targets[count++] = target;
    targets[count++] = &scalar_kernels();
  }
  const Kernels* find(std::string_view name) const {
    for (size_t i = 0; i < count; ++i) {
      if (targets[i]->name == name) return targets[i];
    }
    return nullptr;
  }
};

const Table& table() {
  static const Table kTable;
  return kTable;
}

std::string_view wanted() {
  const char* name = std::getenv("DELTAWIRE_KERNELS");
  return name == nullptr ? "" : name;
}

const Kernels* initial_choice() {
  const Kernels* named = table().find(wanted());
  return named != nullptr ? named : table().targets[0];
}

std::atomic<const Kernels*>& chosen() {
  static std::atomic<const Kernels*> kernels{initial_choice()};
  return kernels;
}

}  // namespace

std::span<const Kernels* const> available_kernels() noexcept {
  return {table().targets.data(), table().count};
}

const Kernels& kernels() noexcept { return *chosen().load(std::memory_order_relaxed); }

std::string_view unknown_kernels() noexcept {
  return table().find(wanted()) == nullptr ? wanted() : "";
}

bool force_kernels(std::string_view name) noexcept {
  const Kernels* named = table().find(name);
  if (named != nullptr) chosen().store(named, std::memory_order_relaxed);
  return named != nullptr;
}

}  // namespace deltawire
