#include "delta/patched_digest.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "codec/elements.h"
#include "digest/parallel.h"

namespace deltawire {
namespace {

constexpr size_t kDigestPieceBytes = size_t{64} << 10;  // a multiple of every width

// Adds what changes do to the sums of `bytes`. Neighbours that share a word are taken together.
template <class Element>
void replace_words(Bytes bytes, const ChangeSpan& changes, Sums* sums) {
  constexpr size_t kWord = 8;
  const size_t count = changes.positions.size();
  for (size_t i = 0; i < count;) {
    const uint64_t word = changes.positions[i] * sizeof(Element) / kWord;
    uint8_t before[kWord] = {}, after[kWord];
    const Bytes own = bytes.subspan(word * kWord, std::min(kWord, bytes.size() - word * kWord));
    std::memcpy(before, own.data(), own.size());
    std::memcpy(after, before, kWord);
    for (; i < count && changes.positions[i] * sizeof(Element) / kWord == word; ++i) {
      std::memcpy(after + changes.positions[i] * sizeof(Element) % kWord,
                  changes.values.data() + i * sizeof(Element), sizeof(Element));
    }
    sums->replace_word(word, load_le<uint64_t>(before), load_le<uint64_t>(after));
  }
}

}  // namespace

BothDigests digests_around(unsigned width, Bytes bytes, const ChangeSpan& changes,
                           ThreadPool* pool) {
  Sums sums = sums_of(bytes, 0, pool);
  const Digest before = *sums.finish(bytes.size());
  with_element(width,
               [&]<class Element>(Element) { replace_words<Element>(bytes, changes, &sums); });
  return {before, *sums.finish(bytes.size())};
}

Digest patched_digest(DigestKind kind, unsigned width, Bytes bytes, const ChangeSpan& changes,
                      ThreadPool* pool) {
  if (adds_up(kind)) return digests_around(width, bytes, changes, pool).after;
  static thread_local std::vector<uint8_t> buffer(kDigestPieceBytes);
  uint8_t* const piece = buffer.data();
  Hasher hasher(kind);
  size_t next = 0;  // change
  for (size_t at = 0; at < bytes.size(); at += kDigestPieceBytes) {
    const Bytes own = bytes.subspan(at, std::min(kDigestPieceBytes, bytes.size() - at));
    const uint64_t begin = at / width, end = begin + own.size() / width;
    if (next == changes.positions.size() || changes.positions[next] >= end) {
      hasher.update(own);
      continue;
    }
    std::memcpy(piece, own.data(), own.size());
    with_element(width, [&]<class Element>(Element) {
      const uint64_t* const positions = changes.positions.data();
      const uint8_t* const values = changes.values.data();
      size_t i = next;
      for (const size_t count = changes.positions.size(); i < count && positions[i] < end; ++i) {
        std::memcpy(piece + (positions[i] - begin) * sizeof(Element), values + i * sizeof(Element),
                    sizeof(Element));
      }
      next = i;
    });
    hasher.update(std::span<const uint8_t>(piece, own.size()));
  }
  return hasher.finish();
}

}  // namespace deltawire
