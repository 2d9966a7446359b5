#include "codec/tight_sample.h"

#include <algorithm>

#include "codec/elements.h"

namespace deltawire::tight {
namespace {

constexpr size_t kPiece = 2048;  // elements read in one go

// Calls body(start, length) for evenly spaced pieces of [0, n), about `wanted` elements in all.
template <class Body>
void each_piece(size_t n, size_t wanted, const Body& body) {
  const size_t num_pieces = (n + kPiece - 1) / kPiece;
  const size_t taken = std::min(num_pieces, std::max<size_t>(1, wanted / kPiece));
  for (size_t i = 0; i < taken; ++i) {
    const size_t start = (i * num_pieces / taken) * kPiece;
    body(start, std::min(kPiece, n - start));
  }
}

template <class T>
KeyStats sample(Layout layout, const uint8_t* old_data, const uint8_t* new_data, size_t n) {
  KeyStats stats;
  const auto key_at = [&](size_t i) {
    return uint8_t(load_le<T>(old_data + i * sizeof(T)) >> layout.key_shift) & layout.key_mask;
  };
  // Which keys there are is learnt from fewer elements than which of them change.
  uint32_t counts[4][256] = {};  // four, so that runs of one key do not wait for each other
  each_piece(n, std::clamp<size_t>(n / 128, 8192, 65536), [&](size_t start, size_t length) {
    for (size_t i = 0; i < length; ++i) ++counts[i % 4][key_at(start + i)];
    stats.population_seen += length;
  });
  for (unsigned key = 0; key < 256; ++key) {
    for (const auto& count : counts) stats.population[key] += count[key];
  }
  uint16_t positions[kPiece + kStripElements];
  each_piece(n, std::clamp<size_t>(n / 32, 16384, 262144), [&](size_t start, size_t length) {
    const size_t found = kernels().diff[width_index(sizeof(T))](
        old_data + start * sizeof(T), new_data + start * sizeof(T), length, positions);
    for (size_t i = 0; i < found; ++i) ++stats.changed[key_at(start + positions[i])];
    stats.changed_seen += length;
  });
  return stats;
}

}  // namespace

KeyStats sample_keys(Layout layout, Bytes old_bytes, Bytes new_bytes) {
  return with_element(layout.width, [&](auto element) {
    return sample<decltype(element)>(layout, old_bytes.data(), new_bytes.data(),
                                     old_bytes.size() / layout.width);
  });
}

}  // namespace deltawire::tight
