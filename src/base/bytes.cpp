#include "base/bytes.h"

#include <openssl/rand.h>

#include <cstdlib>
#include <vector>

#include "base/guard.h"

namespace deltawire {
namespace {

constexpr char kHexDigits[] = "0123456789abcdef";

}  // namespace

Result<std::shared_ptr<uint8_t[]>> allocate_bytes(uint64_t size_bytes) {
  return guard_memory("a large buffer", [&]() -> Result<std::shared_ptr<uint8_t[]>> {
    return std::shared_ptr<uint8_t[]>(new uint8_t[size_bytes]);
  });
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

std::string to_hex(std::string_view bytes) {
  return to_hex(Bytes(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()));
}

}  // namespace deltawire
