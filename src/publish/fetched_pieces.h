// Bytes of a device on their way to readers that ask for few at a time, several of them side by
// side: they are fetched in pieces that are worth the trip. To fetch some of a tensor that is made,
// all of it is made.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <mutex>
#include <vector>

#include "base/bytes.h"
#include "deltawire/status.h"

namespace deltawire {

class FetchedPieces {
 public:
  static constexpr uint64_t kPieceBytes = uint64_t{4} << 20;
  static constexpr size_t kMostPieces = 64;  // of all readers

  using Fetch = std::function<Status(uint64_t begin, MutableBytes piece)>;
  // Bytes of a body of `size`, from `offset` on. What has been read to its end is gone: who reads
  // again sees what is there then.
  Status read(const void* body, uint64_t size, uint64_t offset, MutableBytes out,
              const Fetch& fetch);
  // A body that goes.
  void forget(const void* body) noexcept;
  size_t num_pieces() const;

 private:
  struct Piece {
    const void* body;
    uint64_t begin;
    std::vector<uint8_t> bytes;
  };

  mutable std::mutex mutex_;
  std::list<Piece> pieces_;  // the last that was read first
};

}  // namespace deltawire
