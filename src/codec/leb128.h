// LEB128: 7 bits per byte, low bits first, the top bit says that more follow.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "codec/checks.h"

namespace deltawire {

inline constexpr size_t kMaxLeb128Bytes = 10;

inline void put_leb128(uint64_t value, std::vector<uint8_t>* out) {
  for (; value >= 0x80; value >>= 7) out->push_back(uint8_t(value) | 0x80);
  out->push_back(uint8_t(value));
}

// Takes one number off the front of *in. Refuses one that is cut off, that needs more than 64 bits,
// or that is longer than it need be: a number has one spelling.
inline Status take_leb128(std::string_view what, Bytes* in, uint64_t* value) {
  uint64_t result = 0;
  for (size_t i = 0; i < in->size() && i < kMaxLeb128Bytes; ++i) {
    const uint8_t byte = (*in)[i];
    if (i + 1 == kMaxLeb128Bytes && byte > 1) {
      return bad_payload(what, "a LEB128 number of 64 bits", "a longer one");
    }
    result |= uint64_t(byte & 0x7f) << (7 * i);
    if ((byte & 0x80) != 0) continue;
    if (byte == 0 && i > 0) return bad_payload(what, "the shortest LEB128 form", "a padded one");
    *in = in->subspan(i + 1);
    *value = result;
    return {};
  }
  return bad_payload(what, "a LEB128 number", "the end of the payload");
}

}  // namespace deltawire
