// Text: splitting, numbers in it, the characters of names and URLs.
#pragma once

#include <charconv>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "base/bytes.h"

namespace deltawire {

inline Bytes text_bytes(std::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

// A failure with its place before the message, as Status::at() does it.
template <class T>
Result<T> located(Result<T> result, std::string_view place) {
  return result.ok() ? std::move(result) : std::move(result).status().at(place);
}

// The pieces of `text` between separators: one more than those; they point into it.
std::vector<std::string_view> split_text(std::string_view text, char separator);

// Without these characters at both ends.
std::string_view trimmed(std::string_view text, std::string_view characters = " \t\r\n");

std::string lower_case(std::string_view text);  // of ASCII letters

// ASCII letters, digits, '.', '_' and '-'.
bool is_name_char(char c) noexcept;

// Every byte but letters, digits and "-._~" (and '/', if asked) becomes %XX.
std::string percent_encode(std::string_view text, bool keep_slashes);

// All of `text` is a decimal number that fits.
template <class Number>
bool parse_number(std::string_view text, Number* value) noexcept {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value);
  return error == std::errc() && end == text.data() + text.size();
}

}  // namespace deltawire
