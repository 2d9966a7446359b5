// Text from files: UTF-8 checks, escaping for messages, and lists of numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/text.h"

namespace deltawire {

bool is_utf8(std::string_view text) noexcept;

// Quotes the text, escapes control characters and bytes that are not UTF-8, and truncates it after
// about 120 bytes, so that a hostile name can neither flood nor control a terminal.
std::string quote(std::string_view text);

// The same escapes without quotes and without a limit: for whole messages and paths.
std::string escape_controls(std::string_view text);

// "2048,1024"; empty if there are no numbers.
std::string join_numbers(const std::vector<uint64_t>& numbers);
// The reverse, for one or more numbers: appends to *numbers. False if `text` holds anything else or
// *numbers would exceed `limit`.
bool split_numbers(std::string_view text, std::vector<uint64_t>* numbers, size_t limit = SIZE_MAX);

}  // namespace deltawire
