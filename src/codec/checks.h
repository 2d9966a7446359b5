// What codecs check before they trust an argument or a payload, and how they say that it is wrong.
#pragma once

#include <cstdint>
#include <string_view>

#include "codec/codec.h"

namespace deltawire {

// Corruption: "what: expected X, got Y". The caller puts file and tensor before it.
Status bad_payload(std::string_view what, std::string_view expected, std::string_view got);
Status bad_payload(std::string_view what, uint64_t expected, uint64_t got);
Status bad_payload(std::string_view what, std::string_view expected, uint64_t got);

// InvalidArgument unless the width is 1, 2, 4 or 8 and the array holds whole elements ...
Status check_array(Layout layout, size_t size_bytes);
// ... and both arrays are of one size.
Status check_arrays(Layout layout, Bytes old_bytes, Bytes new_bytes);

}  // namespace deltawire
