#include "sync/replica/patched_digest.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "codec/elements.h"

namespace deltawire {
namespace {

constexpr size_t kPieceBytes = size_t{64} << 10;  // a multiple of every width

}  // namespace

BothDigests digests_around(DigestKind kind, unsigned width, Bytes bytes, uint64_t first,
                           const ChangeSpan& changes) {
  static thread_local std::vector<uint8_t> piece(kPieceBytes);
  Hasher before(kind), after(kind);
  size_t next = 0;  // change
  for (size_t at = 0; at < bytes.size(); at += kPieceBytes) {
    const Bytes own = bytes.subspan(at, std::min(kPieceBytes, bytes.size() - at));
    before.update(own);
    const uint64_t begin = first + at / width, end = begin + own.size() / width;
    if (next == changes.positions.size() || changes.positions[next] >= end) {
      after.update(own);
      continue;
    }
    std::memcpy(piece.data(), own.data(), own.size());
    with_element(width, [&]<class Element>(Element) {
      for (; next < changes.positions.size() && changes.positions[next] < end; ++next) {
        std::memcpy(piece.data() + (changes.positions[next] - begin) * sizeof(Element),
                    changes.values.data() + next * sizeof(Element), sizeof(Element));
      }
    });
    after.update(std::span<const uint8_t>(piece.data(), own.size()));
  }
  return {before.finish(), after.finish()};
}

}  // namespace deltawire
