#include "codec/checks.h"

#include <string>

namespace deltawire {

Status bad_payload(std::string_view what, std::string_view expected, std::string_view got) {
  std::string message(what);
  message.append(": expected ").append(expected).append(", got ").append(got);
  return corruption(std::move(message));
}

Status bad_payload(std::string_view what, uint64_t expected, uint64_t got) {
  return bad_payload(what, std::to_string(expected), std::to_string(got));
}

Status bad_payload(std::string_view what, std::string_view expected, uint64_t got) {
  return bad_payload(what, expected, std::to_string(got));
}

Status check_array(Layout layout, size_t size_bytes) {
  const unsigned width = layout.width;
  if (width != 1 && width != 2 && width != 4 && width != 8) {
    return invalid_argument("element width: expected 1, 2, 4 or 8, got " + std::to_string(width));
  }
  if (size_bytes % width != 0) {
    return invalid_argument("array size: expected a multiple of " + std::to_string(width) +
                            ", got " + std::to_string(size_bytes));
  }
  return {};
}

Status check_arrays(Layout layout, Bytes old_bytes, Bytes new_bytes) {
  if (old_bytes.size() != new_bytes.size()) {
    return invalid_argument("new array size: expected " + std::to_string(old_bytes.size()) +
                            ", got " + std::to_string(new_bytes.size()));
  }
  return check_array(layout, new_bytes.size());
}

}  // namespace deltawire
