#include "delta/item_copies.h"

#include <algorithm>

#include "base/bytes.h"
#include "base/guard.h"
#include "base/mapping.h"

namespace deltawire {
namespace {

constexpr uint64_t kCopiedPieceBytes = uint64_t{4} << 20;
constexpr uint64_t kRoundBytes = uint64_t{64} << 10;  // a buffer fits its like

Status copy(Bytes from, const Body* contents, uint64_t begin, MutableBytes to, ThreadPool* pool) {
  const size_t pieces = size_t((to.size() + kCopiedPieceBytes - 1) / kCopiedPieceBytes);
  return parallel_try("copying tensors", pool, pieces, [&](size_t i, unsigned) -> Status {
    const uint64_t at = i * kCopiedPieceBytes, size = std::min(kCopiedPieceBytes, to.size() - at);
    if (contents != nullptr) return contents->read(begin + at, to.subspan(at, size));
    copy_out(from.data() + at, to.data() + at, size);
    return {};
  });
}

}  // namespace

ItemCopy::~ItemCopy() {
  if (!buffers_.empty()) owner_->give_back(std::move(buffers_));
}

Result<ItemCopies::Buffer> ItemCopies::take_buffer(uint64_t size) {
  size = (size + kRoundBytes - 1) / kRoundBytes * kRoundBytes;
  {
    const std::lock_guard lock(mutex_);
    auto best = free_.end();
    for (auto it = free_.begin(); it != free_.end(); ++it) {
      if (it->size >= size && (best == free_.end() || it->size < best->size)) best = it;
    }
    if (best != free_.end()) {
      Buffer buffer = std::move(*best);
      free_.erase(best);
      return buffer;
    }
    while (held_bytes_ + size > keep_bytes_ && !free_.empty()) {
      held_bytes_ -= free_.back().size;
      free_.pop_back();
    }
    held_bytes_ += size;
  }
  Result<std::shared_ptr<uint8_t[]>> bytes = allocate_bytes(size);
  if (bytes.ok()) return Buffer{std::move(*bytes), size};
  const std::lock_guard lock(mutex_);
  held_bytes_ -= size;
  return bytes.status();
}

void ItemCopies::give_back(std::vector<Buffer> buffers) {
  const std::lock_guard lock(mutex_);
  for (Buffer& buffer : buffers) {
    if (held_bytes_ <= keep_bytes_) {
      free_.push_back(std::move(buffer));
    } else {
      held_bytes_ -= buffer.size;
    }
  }
}

Result<ItemCopy> ItemCopies::take(const EncodeItem& item, bool old_too, ThreadPool* pool) {
  ItemCopy made(this, item);
  const auto replace = [&](Bytes* bytes, uint64_t size, const Body* contents) -> Status {
    if (size == 0) return {};
    DW_ASSIGN_OR_RETURN(Buffer buffer, take_buffer(size));
    const MutableBytes own{buffer.bytes.get(), size};
    made.buffers_.push_back(std::move(buffer));
    DW_RETURN_IF_ERROR(copy(*bytes, contents, item.begin, own, pool));
    *bytes = own;
    return {};
  };
  TensorChange& change = made.item_.change;
  DW_RETURN_IF_ERROR(replace(&change.new_bytes, item.size_bytes(), item.new_contents.get()));
  if (old_too) {
    DW_RETURN_IF_ERROR(replace(&change.old_bytes, change.old_bytes.size(), nullptr));
  }
  return made;
}

}  // namespace deltawire
