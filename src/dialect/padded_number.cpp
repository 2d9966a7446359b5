#include "dialect/padded_number.h"

#include <charconv>

namespace deltawire {

std::optional<uint64_t> parse_padded_number(std::string_view text, size_t min_digits) noexcept {
  if (text.size() < min_digits || (text.size() > min_digits && text.starts_with('0'))) return {};
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return {};
  return number;
}

std::optional<uint64_t> parse_numbered_name(std::string_view text, std::string_view prefix,
                                            size_t min_digits, std::string_view suffix) noexcept {
  if (text.size() < prefix.size() + suffix.size()) return {};
  if (!text.starts_with(prefix) || !text.ends_with(suffix)) return {};
  text.remove_prefix(prefix.size());
  text.remove_suffix(suffix.size());
  return parse_padded_number(text, min_digits);
}

}  // namespace deltawire
