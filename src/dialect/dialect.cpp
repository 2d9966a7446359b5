#include "dialect/dialect.h"

#include <algorithm>

namespace deltawire {

std::span<const Dialect* const> all_dialects() noexcept {
  static const std::vector<const Dialect*> dialects = {&slime_dialect(), &trl_dialect()};
  return dialects;
}

const Dialect* find_dialect(std::string_view name) noexcept {
  const auto dialects = all_dialects();
  const auto it = std::ranges::find(dialects, name, &Dialect::name);
  return it == dialects.end() ? nullptr : *it;
}

Result<const Dialect*> recognise_dialect(Store& store) {
  for (const Dialect* dialect : all_dialects()) {
    auto recognised = dialect->recognises(store);
    if (!recognised.ok()) return recognised.status();
    if (*recognised) return dialect;
  }
  return static_cast<const Dialect*>(nullptr);
}

}  // namespace deltawire
