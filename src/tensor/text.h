// Text that came from a file: is it UTF-8, how is it shown in a message, and the numbers in it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/text.h"

namespace deltawire {

bool is_utf8(std::string_view text) noexcept;

// In double quotes, control characters and bytes that are not UTF-8 escaped, cut after about 120
// bytes: a hostile name must not flood or steer the terminal that shows it.
std::string quote(std::string_view text);

// The same escapes without quotes and without a limit: for whole messages and paths.
std::string escape_controls(std::string_view text);

// "2048,1024"; no number is no text.
std::string join_numbers(const std::vector<uint64_t>& numbers);
// The reverse, for one number or more: appends to *numbers, false when there is anything else in
// `text` or *numbers would hold over `limit`.
bool split_numbers(std::string_view text, std::vector<uint64_t>* numbers, size_t limit = SIZE_MAX);

}  // namespace deltawire
