// Bytes put together by hand, for hostile files and payloads.
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

namespace deltawire::testing {

using Blob = std::vector<uint8_t>;

inline Blob operator+(Blob a, const Blob& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// The low `size` bytes of a number, little-endian.
inline Blob le(uint64_t value, size_t size) {
  Blob bytes(size);
  std::memcpy(bytes.data(), &value, size);
  return bytes;
}

}  // namespace deltawire::testing
