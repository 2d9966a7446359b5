#pragma once

#include <string_view>

namespace deltawire {

std::string_view version() noexcept;  // "0.1.0"

}  // namespace deltawire
