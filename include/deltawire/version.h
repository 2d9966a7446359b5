#pragma once

#include <string_view>

namespace deltawire {

std::string_view version() noexcept;  // "0.2.0"

}  // namespace deltawire
