// The boxes of other ranks, read from the store when a version is stored whole.
#pragma once

#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "deltawire/store.h"
#include "sync/publisher/record.h"

namespace deltawire {

// Blocks of objects, the most recently used ones kept. Columns of a tensor that was split that way
// are read in many small pieces: from here they cost one request per block. Thread-safe.
class BlockCache {
 public:
  BlockCache(Store& store, uint64_t max_bytes) : store_(store), max_bytes_(max_bytes) {}

  Status read(const std::string& object, uint64_t object_bytes, uint64_t offset, MutableBytes out);

 private:
  using Block = std::shared_ptr<const std::vector<uint8_t>>;
  struct Key {
    std::string object;
    uint64_t number;
    auto operator<=>(const Key&) const = default;
  };
  Result<Block> block(const Key& key, uint64_t object_bytes);

  Store& store_;
  const uint64_t max_bytes_;
  std::mutex mutex_;
  std::list<std::pair<Key, Block>> recent_;  // newest first
  std::map<Key, std::list<std::pair<Key, Block>>::iterator> by_key_;
  uint64_t bytes_ = 0;
};

// The contents of each piece, one after the other in the object that a rank has put.
std::vector<std::shared_ptr<const Body>> boxes_in_object(const std::vector<PieceRecord>& pieces,
                                                         const std::string& object,
                                                         std::shared_ptr<BlockCache> cache);

}  // namespace deltawire
