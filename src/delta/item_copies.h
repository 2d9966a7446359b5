// Copies of the arrays that are being encoded: nobody else can write to those.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "base/bytes.h"
#include "base/thread_pool.h"
#include "delta/encode_items.h"

namespace deltawire {

class ItemCopies;

// An item whose bytes are its own, until it is destroyed.
class ItemCopy {
 public:
  ItemCopy(ItemCopy&& other) noexcept = default;
  ~ItemCopy();
  const EncodeItem& item() const noexcept { return item_; }

 private:
  friend class ItemCopies;
  struct Buffer {
    std::shared_ptr<uint8_t[]> bytes;
    uint64_t size = 0;
  };
  ItemCopy(ItemCopies* owner, EncodeItem item) : owner_(owner), item_(std::move(item)) {}

  ItemCopies* owner_;
  EncodeItem item_;
  std::vector<Buffer> buffers_;
};

// Memory goes from item to item: the system gives fresh pages slowly. Thread-safe.
class ItemCopies {
 public:
  // Buffers that nobody uses are kept while all of them together are no larger than this.
  explicit ItemCopies(uint64_t keep_bytes) : keep_bytes_(keep_bytes) {}

  // Of the new bytes, and of the old ones too if asked.
  Result<ItemCopy> take(const EncodeItem& item, bool old_too, ThreadPool* pool);

 private:
  friend class ItemCopy;
  using Buffer = ItemCopy::Buffer;
  Result<Buffer> take_buffer(uint64_t size);
  void give_back(std::vector<Buffer> buffers);

  const uint64_t keep_bytes_;
  std::mutex mutex_;
  std::vector<Buffer> free_;
  uint64_t held_bytes_ = 0;  // free and in use
};

}  // namespace deltawire
