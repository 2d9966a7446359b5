#include "sync/publisher/ranks_boxes.h"

#include <algorithm>
#include <cstring>

namespace deltawire {
namespace {

constexpr uint64_t kBlockBytes = uint64_t{1} << 20;

class BoxBody final : public Body {
 public:
  BoxBody(std::shared_ptr<BlockCache> cache, std::string object, uint64_t object_bytes,
          uint64_t begin, uint64_t size)
      : cache_(std::move(cache)),
        object_(std::move(object)),
        object_bytes_(object_bytes),
        begin_(begin),
        size_(size) {}
  uint64_t size() const noexcept override { return size_; }
  Status read(uint64_t offset, MutableBytes out) const override {
    return cache_->read(object_, object_bytes_, begin_ + offset, out);
  }

 private:
  const std::shared_ptr<BlockCache> cache_;
  const std::string object_;
  const uint64_t object_bytes_, begin_, size_;
};

}  // namespace

Result<BlockCache::Block> BlockCache::block(const Key& key, uint64_t object_bytes) {
  {
    const std::lock_guard lock(mutex_);
    const auto found = by_key_.find(key);
    if (found != by_key_.end()) {
      recent_.splice(recent_.begin(), recent_, found->second);
      return found->second->second;
    }
  }
  const uint64_t begin = key.number * kBlockBytes;
  auto bytes = std::make_shared<std::vector<uint8_t>>(std::min(kBlockBytes, object_bytes - begin));
  DW_RETURN_IF_ERROR(store_.read(key.object, begin, *bytes));
  const std::lock_guard lock(mutex_);
  if (by_key_.contains(key)) return Block(bytes);  // another thread was as fast
  bytes_ += bytes->size();
  recent_.emplace_front(key, bytes);
  by_key_[key] = recent_.begin();
  while (bytes_ > max_bytes_ && recent_.size() > 1) {
    bytes_ -= recent_.back().second->size();
    by_key_.erase(recent_.back().first);
    recent_.pop_back();
  }
  return Block(bytes);
}

Status BlockCache::read(const std::string& object, uint64_t object_bytes, uint64_t offset,
                        MutableBytes out) {
  while (!out.empty()) {
    const uint64_t number = offset / kBlockBytes, skip = offset % kBlockBytes;
    DW_ASSIGN_OR_RETURN(const Block bytes, block({object, number}, object_bytes));
    const size_t count = size_t(std::min<uint64_t>(bytes->size() - skip, out.size()));
    std::memcpy(out.data(), bytes->data() + skip, count);
    out = out.subspan(count);
    offset += count;
  }
  return {};
}

std::vector<std::shared_ptr<const Body>> boxes_in_object(const std::vector<PieceRecord>& pieces,
                                                         const std::string& object,
                                                         std::shared_ptr<BlockCache> cache) {
  std::vector<uint64_t> sizes;
  uint64_t total = 0;
  for (const PieceRecord& piece : pieces) {
    sizes.push_back(tensor_size_bytes(piece.dtype, box_shape(piece.box, piece.shape)).value());
    total += sizes.back();
  }
  std::vector<std::shared_ptr<const Body>> bodies;
  uint64_t begin = 0;
  for (const uint64_t size : sizes) {
    bodies.push_back(std::make_shared<BoxBody>(cache, object, total, begin, size));
    begin += size;
  }
  return bodies;
}

}  // namespace deltawire
