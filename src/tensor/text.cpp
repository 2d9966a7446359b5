#include "tensor/text.h"

#include <algorithm>
#include <charconv>

namespace deltawire {
namespace {

constexpr size_t kMaxQuotedBytes = 120;

bool is_continuation(char c) { return (uint8_t(c) & 0xC0) == 0x80; }

// Length of the well-formed sequence at the start of `text`, 0 when there is none. The ranges of
// the second byte exclude overlong forms, surrogates and code points over U+10FFFF.
size_t sequence_length(std::string_view text) {
  const uint8_t lead = uint8_t(text[0]);
  if (lead < 0x80) return 1;
  if (lead < 0xC2 || lead > 0xF4) return 0;
  const size_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  if (text.size() < length) return 0;
  for (size_t i = 1; i < length; ++i) {
    if (!is_continuation(text[i])) return 0;
  }
  const uint8_t second = uint8_t(text[1]);
  if (lead == 0xE0 && second < 0xA0) return 0;
  if (lead == 0xED && second > 0x9F) return 0;
  if (lead == 0xF0 && second < 0x90) return 0;
  if (lead == 0xF4 && second > 0x8F) return 0;
  return length;
}

}  // namespace

bool is_utf8(std::string_view text) noexcept {
  while (!text.empty()) {
    const size_t length = sequence_length(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

std::string quote(std::string_view text) {
  static constexpr char kDigits[] = "0123456789abcdef";
  size_t end = text.size();
  if (end > kMaxQuotedBytes) {
    end = kMaxQuotedBytes;
    while (end > 0 && is_continuation(text[end])) --end;
  }
  std::string result = "\"";
  for (size_t at = 0; at < end;) {
    const uint8_t byte = uint8_t(text[at]);
    const size_t length = sequence_length(text.substr(at, end - at));
    if (length == 0 || byte < 0x20 || byte == 0x7F) {
      result.append("\\x").append(1, kDigits[byte >> 4]).append(1, kDigits[byte & 15]);
    } else {
      if (byte == '"' || byte == '\\') result += '\\';
      result.append(text.substr(at, length));
    }
    at += std::max<size_t>(length, 1);
  }
  if (end < text.size()) result += "...";
  return result + "\"";
}

bool parse_number(std::string_view text, uint64_t* value) noexcept {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value);
  return error == std::errc() && end == text.data() + text.size();
}

std::string join_numbers(const std::vector<uint64_t>& numbers) {
  std::string text;
  for (const uint64_t number : numbers) {
    if (!text.empty()) text.push_back(',');
    text += std::to_string(number);
  }
  return text;
}

bool split_numbers(std::string_view text, std::vector<uint64_t>* numbers, size_t limit) {
  while (true) {
    const size_t comma = text.find(',');
    uint64_t number;
    if (!parse_number(text.substr(0, comma), &number) || numbers->size() >= limit) return false;
    numbers->push_back(number);
    if (comma == std::string_view::npos) return true;
    text.remove_prefix(comma + 1);
  }
}

}  // namespace deltawire
