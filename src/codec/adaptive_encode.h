// What `adaptive` makes of changes, wherever they were found: on the host, or on a GPU.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "codec/adaptive_model.h"
#include "codec/elements.h"
#include "codec/leb128.h"

namespace deltawire::adaptive {

// On disk: the first byte of a payload.
enum class View : uint8_t { kElements = 0, kNibbles = 1 };

inline unsigned codes_per_element(View view, unsigned width) {
  return view == View::kNibbles ? 2 * width : 1;
}

// How many changes a payload says that it has, as its view shows them. None: it is too short.
inline std::optional<uint64_t> num_changes(Bytes payload) {
  uint64_t count = 0;
  if (payload.empty()) return {};
  payload = payload.subspan(1);
  if (!take_leb128("number of changes", &payload, &count).ok()) return {};
  return count;
}

// Calls body(Values{}) with the model of what the view shows.
template <class Body>
auto with_view(View view, unsigned width, Body&& body) {
  if (view == View::kNibbles) return body(Nibbles{});
  return with_element(width, [&](auto element) { return body(Elements<8 * sizeof(element)>{}); });
}

inline uint64_t load_element(const uint8_t* data, unsigned width) {
  return with_element(width,
                      [&](auto element) -> uint64_t { return load_le<decltype(element)>(data); });
}

// Calls visit(position, old, new) for each change that the view shows, in order.
template <class ForEach, class Visit>
void for_each_code(View view, unsigned width, const ForEach& for_each, const Visit& visit) {
  if (view == View::kElements) return for_each(visit);
  for_each([&](uint64_t position, uint64_t before, uint64_t after) {
    for (unsigned k = 0; k < 2 * width; ++k) {
      const uint64_t old_code = before >> 4 * k & 15, new_code = after >> 4 * k & 15;
      if (old_code != new_code) visit(2 * width * position + k, old_code, new_code);
    }
  });
}

template <class ForEach>
std::vector<uint8_t> encode_view(View view, unsigned width, uint64_t num_elements,
                                 const ForEach& for_each) {
  uint64_t count = 0;
  for_each_code(view, width, for_each, [&](auto...) { ++count; });
  std::vector<uint8_t> payload = {uint8_t(view)};
  put_leb128(count, &payload);
  RangeEncoder coder(&payload);
  Gaps gaps(num_elements * codes_per_element(view, width), count);
  with_view(view, width, [&](auto values) {
    uint64_t next = 0;
    for_each_code(view, width, for_each, [&](uint64_t position, uint64_t before, uint64_t after) {
      gaps.code(&coder, position - next);
      values.code(&coder, before, after);
      next = position + 1;
    });
  });
  coder.finish();
  return payload;
}

// The payload of an array with changes. for_each(visit) calls visit(position, old, new) for each
// changed element, the same ones every time: positions ascend, and the new value differs from the
// old one. There is at least one.
template <class ForEach>
std::vector<uint8_t> encode_changes(unsigned width, uint64_t num_elements,
                                    const ForEach& for_each) {
  std::vector<uint8_t> payload = encode_view(View::kElements, width, num_elements, for_each);
  std::vector<uint8_t> nibbles = encode_view(View::kNibbles, width, num_elements, for_each);
  if (nibbles.size() < payload.size()) payload = std::move(nibbles);
  return payload;
}

}  // namespace deltawire::adaptive
