// What names are made of; deltawire/store.h has the rules.
#pragma once

#include <cstddef>
#include <string_view>

namespace deltawire {

inline constexpr size_t kMaxListed = 1000;  // by one call of list()

bool is_name_char(char c) noexcept;
// What stands between two slashes.
bool is_name_component(std::string_view component) noexcept;

}  // namespace deltawire
