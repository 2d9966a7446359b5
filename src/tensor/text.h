// Text that came from a file: is it UTF-8, and how is it shown in a message.
#pragma once

#include <string>
#include <string_view>

namespace deltawire {

bool is_utf8(std::string_view text) noexcept;

// In double quotes, control characters and bytes that are not UTF-8 escaped, cut after about 120
// bytes: a hostile name must not flood or steer the terminal that shows it.
std::string quote(std::string_view text);

}  // namespace deltawire
