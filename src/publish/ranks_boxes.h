// The boxes of ranks when a version is stored whole: each puts its own, rank 0 reads them. What is
// read is what was put, block by block, by the sha-256 of the rank's report.
#pragma once

#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "deltawire/store.h"
#include "publish/record.h"

namespace deltawire {

// What a rank's boxes object holds, block by block.
struct BoxesSeal {
  uint64_t size_bytes = 0;
  std::vector<Digest> blocks;  // sha-256 of each kBoxesBlockBytes, the last one shorter
};
inline constexpr uint64_t kBoxesBlockBytes = uint64_t{1} << 20;

std::string boxes_name(uint64_t version, std::string_view attempt, unsigned rank);

struct BoxesObject {
  std::string name;
  BoxesSeal seal;
};

// Blocks of objects, the most recently used ones kept. Columns of a tensor that was split that way
// are read in many small pieces: from here they cost one request per block. Thread-safe.
class BlockCache {
 public:
  BlockCache(Store& store, uint64_t max_bytes) : store_(store), max_bytes_(max_bytes) {}

  // Corruption when a block is not what the seal says.
  Status read(const BoxesObject& object, uint64_t offset, MutableBytes out);

 private:
  using Block = std::shared_ptr<const std::vector<uint8_t>>;
  struct Key {
    std::string object;
    uint64_t number;
    auto operator<=>(const Key&) const = default;
  };
  Result<Block> block(const BoxesObject& object, uint64_t number);

  Store& store_;
  const uint64_t max_bytes_;
  std::mutex mutex_;
  std::list<std::pair<Key, Block>> recent_;  // newest first
  std::map<Key, std::list<std::pair<Key, Block>>::iterator> by_key_;
  uint64_t bytes_ = 0;
};

// The contents of each piece, one after the other in the object that a rank has put.
std::vector<std::shared_ptr<const Body>> boxes_in_object(const std::vector<PieceRecord>& pieces,
                                                         BoxesObject object,
                                                         std::shared_ptr<BlockCache> cache);

// Passes the contents of pieces on, one after the other, and takes note of what goes by: the seal,
// and whether every piece is still what its digest says.
class SealingBody final : public Body {
 public:
  SealingBody(const Body& body, const std::vector<PieceRecord>& pieces);
  uint64_t size() const noexcept override { return body_.size(); }
  Status read(uint64_t offset, MutableBytes out) const override;
  // When nothing reads it any more. Io, naming the tensor, when one was changed meanwhile.
  Result<BoxesSeal> seal();

 private:
  void take(Bytes bytes) const;
  void end_pieces() const;

  const Body& body_;
  const std::vector<PieceRecord>& pieces_;
  mutable std::mutex mutex_;
  mutable BoxesSeal seal_;
  mutable Hasher block_, piece_;
  mutable uint64_t hashed_ = 0, piece_begin_ = 0;  // bytes from the start
  mutable size_t at_piece_ = 0;
  mutable std::string changed_;  // the first tensor that was
};

}  // namespace deltawire
