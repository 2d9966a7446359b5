#include "base/bytes.h"

#include <openssl/rand.h>
#include <cstdlib>
#include <vector>

#include "base/guard.h"

namespace deltawire {

Result<std::shared_ptr<uint8_t[]>> allocate_bytes(uint64_t size_bytes) {
  return guard_memory("a large buffer", [&]() -> Result<std::shared_ptr<uint8_t[]>> {
    return std::shared_ptr<uint8_t[]>(new uint8_t[size_bytes]);
  });
}

namespace {

constexpr char kDigits[] = "0123456789abcdef";

}  // namespace

std::string to_hex(Bytes bytes) {
  std::string text;
  text.reserve(bytes.size() * 2);
  for (const uint8_t byte : bytes) {
    text.push_back(kDigits[byte >> 4]);
    text.push_back(kDigits[byte & 15]);
  }
  return text;
}

std::string to_hex(std::string_view bytes) {
  return to_hex(Bytes(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()));
}

bool is_hex(std::string_view text) noexcept {
  return text.find_first_not_of(kDigits) == std::string_view::npos;
}

std::vector<std::string_view> split_text(std::string_view text, char separator) {
  std::vector<std::string_view> pieces;
  while (true) {
    const size_t at = text.find(separator);
    pieces.push_back(text.substr(0, at));
    if (at == std::string_view::npos) return pieces;
    text.remove_prefix(at + 1);
  }
}

std::string random_hex(size_t digits) {
  std::vector<uint8_t> bytes((digits + 1) / 2);
  if (RAND_bytes(bytes.data(), int(bytes.size())) != 1) std::abort();  // no randomness: no run ids
  std::string text = to_hex(bytes);
  text.resize(digits);
  return text;
}

}  // namespace deltawire
