#include "codec/tight_sample.h"

#include <algorithm>

#include "base/mapping.h"
#include "codec/elements.h"
#include "codec/tight_payload.h"

namespace deltawire::tight {
namespace {

constexpr size_t kPiece = kSamplePieceElements;

template <class T>
KeyStats sample(Layout layout, const uint8_t* old_data, const uint8_t* new_data, size_t n,
                bool copy) {
  const SampledPieces pieces = sampled_pieces(n);
  uint32_t counts[4][256] = {};  // four, so that runs of one key do not wait for each other
  uint16_t positions[kPiece + kStripElements];
  std::vector<uint8_t> copies(copy ? 2 * kPiece * sizeof(T) : 0);
  KeyStats stats;
  for (size_t piece = 0; piece < pieces.taken; ++piece) {
    const size_t start = pieces.start(piece), length = std::min(kPiece, n - start);
    const uint8_t *old_piece = old_data + start * sizeof(T),
                  *new_piece = new_data + start * sizeof(T);
    if (copy) {
      uint8_t *const old_copy = copies.data(), *const new_copy = old_copy + kPiece * sizeof(T);
      copy_out(old_piece, old_copy, length * sizeof(T));
      copy_out(new_piece, new_copy, length * sizeof(T));
      old_piece = old_copy;
      new_piece = new_copy;
    }
    const auto key_at = [&](size_t i) {
      return uint8_t(load_le<T>(old_piece + i * sizeof(T)) >> layout.key_shift) & layout.key_mask;
    };
    for (size_t i = 0; i < length; ++i) ++counts[i % 4][key_at(i)];
    const size_t found =
        kernels().diff[width_index(sizeof(T))](old_piece, new_piece, length, positions);
    for (size_t i = 0; i < found; ++i) ++stats.changed[key_at(positions[i])];
    stats.num_elements += length;
  }
  for (unsigned key = 0; key < 256; ++key) {
    for (const auto& count : counts) stats.population[key] += count[key];
  }
  return stats;
}

}  // namespace

SampledPieces sampled_pieces(size_t n) {
  const size_t all = (n + kPiece - 1) / kPiece;
  return {all, std::min(all, std::clamp<size_t>(n / 48, 16384, 131072) / kPiece)};
}

std::vector<size_t> sampled_blocks(size_t all, bool tiled) {
  const size_t taken = std::min(all, std::clamp<size_t>(all / 16, 2, 8));
  std::vector<size_t> blocks;
  for (size_t i = 0; i < taken; ++i) {
    blocks.push_back(std::min(i * all / taken + (tiled ? i : 0), all - 1));
  }
  return blocks;
}

KeyStats sample_keys(Layout layout, Bytes old_bytes, Bytes new_bytes, bool copy) {
  return with_element(layout.width, [&](auto element) {
    return sample<decltype(element)>(layout, old_bytes.data(), new_bytes.data(),
                                     old_bytes.size() / layout.width, copy);
  });
}

}  // namespace deltawire::tight
