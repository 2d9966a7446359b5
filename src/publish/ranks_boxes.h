// The boxes of ranks for a version stored whole. Each rank puts its boxes and rank 0 reads them,
// checking every block against the sha-256 in the rank's report.
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

// The size and the block digests of a rank's boxes object.
struct BoxesSeal {
  uint64_t size_bytes = 0;
  std::vector<Digest> blocks;  // sha-256 of each kBoxesBlockBytes; the last block may be shorter
};
inline constexpr uint64_t kBoxesBlockBytes = uint64_t{1} << 20;

std::string boxes_name(uint64_t version, std::string_view attempt, unsigned rank);

struct BoxesObject {
  std::string name;
  BoxesSeal seal;
};

// Caches the most recently used blocks of objects. Columns of a split tensor are read in many small
// pieces, which cost one request per block this way. Thread-safe.
class BlockCache {
 public:
  BlockCache(Store& store, uint64_t max_bytes) : store_(store), max_bytes_(max_bytes) {}

  // Corruption if a block does not match the seal.
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

// The contents of each piece in the object that a rank has put.
std::vector<std::shared_ptr<const Body>> boxes_in_object(const std::vector<PieceRecord>& pieces,
                                                         BoxesObject object,
                                                         std::shared_ptr<BlockCache> cache);

// Passes the contents of pieces on in order, computes the seal, and checks that every piece still
// matches its digest.
class SealingBody final : public Body {
 public:
  SealingBody(const Body& body, const std::vector<PieceRecord>& pieces);
  uint64_t size() const noexcept override { return body_.size(); }
  Status read(uint64_t offset, MutableBytes out) const override;
  // Call after the last read. Io, naming the tensor, if one has changed meanwhile.
  Result<BoxesSeal> seal();

 private:
  void take(Bytes bytes) const;
  void end_pieces() const;

  const Body& body_;
  const std::vector<PieceRecord>& pieces_;
  mutable std::mutex mutex_;
  mutable BoxesSeal seal_;
  mutable Hasher block_, piece_;
  mutable uint64_t hashed_ = 0, piece_begin_ = 0;  // bytes from the beginning
  mutable size_t at_piece_ = 0;
  mutable std::string changed_;  // the first changed tensor
};

}  // namespace deltawire
