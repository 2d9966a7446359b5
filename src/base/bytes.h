// Byte spans and little-endian loads and stores: the vocabulary of everything that touches a file.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "deltawire/status.h"

namespace deltawire {

static_assert(std::endian::native == std::endian::little,
              "payloads are little-endian and read in place");

using Bytes = std::span<const uint8_t>;
using MutableBytes = std::span<uint8_t>;

struct ByteRange {
  uint64_t offset = 0, size = 0;

  bool operator==(const ByteRange&) const = default;
};

template <class T>
inline T load_le(const void* p) noexcept {
  T value;
  std::memcpy(&value, p, sizeof value);
  return value;
}

template <class T>
inline void store_le(void* p, T value) noexcept {
  std::memcpy(p, &value, sizeof value);
}

// a * b, or false when it does not fit. Use it for every size that comes from a file.
inline bool checked_mul(uint64_t a, uint64_t b, uint64_t* out) noexcept {
  return !__builtin_mul_overflow(a, b, out);
}
inline bool checked_add(uint64_t a, uint64_t b, uint64_t* out) noexcept {
  return !__builtin_add_overflow(a, b, out);
}

// Uninitialised bytes; OutOfMemory instead of an exception.
Result<std::shared_ptr<uint8_t[]>> allocate_bytes(uint64_t size_bytes);
// allocate_bytes(), or the same from another source of memory.
using Allocate = std::function<Result<std::shared_ptr<uint8_t[]>>(uint64_t size_bytes)>;

// Bytes as lower-case hex digits.
std::string to_hex(Bytes bytes);
std::string to_hex(std::string_view bytes);
bool is_hex(std::string_view text) noexcept;  // nothing but such digits
// Fills `bytes` from exactly twice as many such digits; false for any other text.
bool from_hex(std::string_view text, MutableBytes bytes) noexcept;
std::string random_hex(size_t digits);  // from the system's source of randomness

}  // namespace deltawire
