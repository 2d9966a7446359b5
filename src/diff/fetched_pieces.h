// Device bytes on their way to readers of single tensors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <mutex>
#include <vector>

#include "base/bytes.h"
#include "deltawire/status.h"

namespace deltawire {

// Fetches device bytes in large pieces for several readers that read little at a time. Fetching a
// part of a computed tensor computes all of it.
class FetchedPieces {
 public:
  static constexpr uint64_t kPieceBytes = uint64_t{4} << 20;
  static constexpr size_t kMostPieces = 64;  // of all readers

  using Fetch = std::function<Status(uint64_t begin, MutableBytes piece)>;
  // Reads bytes of a body of `size` from `offset` on. Pieces that were read to their end are
  // dropped; a second read fetches them again.
  Status read(const void* body, uint64_t size, uint64_t offset, MutableBytes out,
              const Fetch& fetch);
  // Drops the pieces of a body.
  void forget(const void* body) noexcept;
  size_t num_pieces() const;

 private:
  struct Piece {
    const void* body;
    uint64_t begin;
    std::vector<uint8_t> bytes;
  };

  mutable std::mutex mutex_;
  std::list<Piece> pieces_;  // most recently read first
};

}  // namespace deltawire
