// Numbers in file names, as Python's "%06d" writes them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace deltawire {

inline std::string padded_number(uint64_t number, size_t min_digits) {
  std::string text = std::to_string(number);
  if (text.size() < min_digits) text.insert(0, min_digits - text.size(), '0');
  return text;
}

// The number, or none where padded_number() would not have written `text`: one file has one name.
std::optional<uint64_t> parse_padded_number(std::string_view text, size_t min_digits) noexcept;

// Takes `prefix`, a number and `suffix` apart; none where `text` is not made of them.
std::optional<uint64_t> parse_numbered_name(std::string_view text, std::string_view prefix,
                                            size_t min_digits, std::string_view suffix) noexcept;

}  // namespace deltawire
