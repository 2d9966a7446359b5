#include "tensor/text.h"

#include <algorithm>

#include "base/text.h"

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

std::string escape(std::string_view text, bool quotes_too) {
  std::string result;
  while (!text.empty()) {
    const uint8_t byte = uint8_t(text[0]);
    const size_t length = sequence_length(text);
    // Two-byte controls, U+0080 to U+009F, steer terminals as those below U+0020 do.
    const bool control =
        byte < 0x20 || byte == 0x7F || (byte == 0xC2 && length == 2 && uint8_t(text[1]) < 0xA0);
    const size_t taken = std::max<size_t>(length, 1);
    if (length == 0 || control) {
      for (size_t i = 0; i < taken; ++i) result.append("\\x").append(to_hex(text.substr(i, 1)));
    } else {
      if (quotes_too && (byte == '"' || byte == '\\')) result += '\\';
      result.append(text.substr(0, taken));
    }
    text.remove_prefix(taken);
  }
  return result;
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
  size_t end = text.size();
  if (end > kMaxQuotedBytes) {
    end = kMaxQuotedBytes;
    while (end > 0 && is_continuation(text[end])) --end;
  }
  std::string result = "\"" + escape(text.substr(0, end), true);
  if (end < text.size()) result += "...";
  return result + "\"";
}

std::string escape_controls(std::string_view text) { return escape(text, false); }

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
