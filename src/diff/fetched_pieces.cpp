#include "diff/fetched_pieces.h"

#include <algorithm>

namespace deltawire {

Status FetchedPieces::read(const void* body, uint64_t size, uint64_t offset, MutableBytes out,
                           const Fetch& fetch) {
  const std::lock_guard lock(mutex_);  // the device serves one call at a time anyway
  while (!out.empty()) {
    const uint64_t begin = offset / kPieceBytes * kPieceBytes;
    auto found = std::find_if(pieces_.begin(), pieces_.end(), [&](const Piece& piece) {
      return piece.body == body && piece.begin == begin;
    });
    if (found == pieces_.end()) {
      if (pieces_.size() == kMostPieces) pieces_.pop_back();
      Piece piece{body, begin, std::vector<uint8_t>(size_t(std::min(kPieceBytes, size - begin)))};
      DW_RETURN_IF_ERROR(fetch(begin, piece.bytes));
      pieces_.push_front(std::move(piece));
    } else {
      pieces_.splice(pieces_.begin(), pieces_, found);
    }
    const Bytes bytes = pieces_.front().bytes;
    const size_t skip = size_t(offset - begin), count = std::min(out.size(), bytes.size() - skip);
    std::copy_n(bytes.begin() + ptrdiff_t(skip), count, out.begin());
    offset += count;
    out = out.subspan(count);
    if (skip + count == bytes.size()) pieces_.pop_front();
  }
  return {};
}

void FetchedPieces::forget(const void* body) noexcept {
  const std::lock_guard lock(mutex_);
  pieces_.remove_if([&](const Piece& piece) { return piece.body == body; });
}

size_t FetchedPieces::num_pieces() const {
  const std::lock_guard lock(mutex_);
  return pieces_.size();
}

}  // namespace deltawire
