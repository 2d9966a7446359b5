// Bytes as lower-case hex digits.
#pragma once

#include <string>
#include <string_view>

#include "base/bytes.h"

namespace deltawire {

std::string to_hex(Bytes bytes);
std::string to_hex(std::string_view bytes);
bool is_hex(std::string_view text) noexcept;  // nothing but such digits

std::string random_hex(size_t digits);  // from the system's source of randomness

}  // namespace deltawire
