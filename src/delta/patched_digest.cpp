#include "delta/patched_digest.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "codec/elements.h"
#include "digest/parallel.h"
#include "digest/sum_changes.h"

namespace deltawire {
namespace {

constexpr size_t kDigestPieceBytes = size_t{64} << 10;  // a multiple of every width

}  // namespace

BothDigests digests_around(unsigned width, Bytes bytes, const ChangeSpan& changes,
                           ThreadPool* pool) {
  return digests_around(sums_of(bytes, 0, pool), width, bytes, changes, pool);
}

BothDigests digests_around(Sums sums, unsigned width, Bytes bytes, const ChangeSpan& changes,
                           ThreadPool* pool) {
  const Digest before = *sums.finish(bytes.size());
  replace_elements(width, bytes, changes.positions, changes.values, pool, &sums);
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
