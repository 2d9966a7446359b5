#include "base/text.h"

#include <openssl/rand.h>

#include <algorithm>
#include <cstdlib>

namespace deltawire {

namespace {

constexpr char kHexDigits[] = "0123456789abcdef";

}  // namespace

std::vector<std::string_view> split_text(std::string_view text, char separator) {
  std::vector<std::string_view> pieces;
  while (true) {
    const size_t at = text.find(separator);
    pieces.push_back(text.substr(0, at));
    if (at == std::string_view::npos) return pieces;
    text.remove_prefix(at + 1);
  }
}

std::string_view trimmed(std::string_view text, std::string_view characters) {
  text.remove_prefix(std::min(text.find_first_not_of(characters), text.size()));
  return text.substr(0, text.find_last_not_of(characters) + 1);
}

std::string lower_case(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) {
    if (c >= 'A' && c <= 'Z') c = char(c - 'A' + 'a');
  }
  return lower;
}

bool is_name_char(char c) noexcept {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
         c == '_' || c == '-';
}

std::string percent_encode(std::string_view text, bool keep_slashes) {
  constexpr char kDigits[] = "0123456789ABCDEF";
  std::string out;
  for (const char c : text) {
    if (is_name_char(c) || c == '~' || (c == '/' && keep_slashes)) {
      out.push_back(c);
    } else {
      out.append({'%', kDigits[uint8_t(c) >> 4], kDigits[uint8_t(c) & 15]});
    }
  }
  return out;
}

std::string to_hex(Bytes bytes) {
  std::string text;
  text.reserve(bytes.size() * 2);
  for (const uint8_t byte : bytes) {
    text.push_back(kHexDigits[byte >> 4]);
    text.push_back(kHexDigits[byte & 15]);
  }
  return text;
}

bool is_hex(std::string_view text) noexcept {
  return text.find_first_not_of(kHexDigits) == std::string_view::npos;
}

std::string random_hex(size_t digits) {
  std::vector<uint8_t> bytes((digits + 1) / 2);
  if (RAND_bytes(bytes.data(), int(bytes.size())) != 1) std::abort();  // no randomness: no run ids
  std::string text = to_hex(bytes);
  text.resize(digits);
  return text;
}

bool from_hex(std::string_view text, MutableBytes bytes) noexcept {
  if (text.size() != 2 * bytes.size() || !is_hex(text)) return false;
  const auto value = [](char c) { return c <= '9' ? c - '0' : c - 'a' + 10; };
  for (size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = uint8_t(value(text[2 * i]) << 4 | value(text[2 * i + 1]));
  }
  return true;
}

}  // namespace deltawire
